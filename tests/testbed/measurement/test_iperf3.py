import subprocess
from pathlib import Path
from typing import Any

import pytest

from wanbed.ground.strict_model import parse_model
from wanbed.testbed.hosts.ping import MeasurementError
from wanbed.testbed.measurement import iperf3
from wanbed.testbed.measurement.iperf3 import Flow, measure_goodput, parse_iperf3, settling_s
from wanbed.testbed.network.address_book import AddressBook
from wanbed.testbed.network.topology import resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec

IPERF3_TCP = """\
{
	"start":	{
		"version":	"iperf 3.12",
		"connecting_to":	{
			"host":	"127.0.0.1",
			"port":	5201
		}
	},
	"intervals":	[],
	"end":	{
		"sum_sent":	{
			"start":	0,
			"end":	1.000228,
			"seconds":	1.000228,
			"bytes":	4544266240,
			"bits_per_second":	36345843067.780548,
			"retransmits":	23,
			"sender":	true
		},
		"sum_received":	{
			"start":	0,
			"end":	1.000675,
			"seconds":	1.000675,
			"bytes":	4547149930,
			"bits_per_second":	36352661393.559349,
			"sender":	true
		},
		"sender_tcp_congestion":	"cubic",
		"receiver_tcp_congestion":	"cubic"
	}
}
"""

IPERF3_UDP = """\
{
	"start":	{
		"version":	"iperf 3.12"
	},
	"intervals":	[],
	"end":	{
		"sum":	{
			"start":	0,
			"end":	1.000173,
			"seconds":	1.000173,
			"bytes":	2497800,
			"bits_per_second":	19980022.377337102,
			"jitter_ms":	0.0068685408004416857,
			"lost_packets":	0,
			"packets":	1725,
			"lost_percent":	0,
			"sender":	true
		},
		"sum_received":	{
			"start":	0,
			"end":	1.000173,
			"seconds":	1.000173,
			"bytes":	2497800,
			"bits_per_second":	19978943.642749804,
			"jitter_ms":	0.0068685408004416857,
			"lost_packets":	0,
			"packets":	1725,
			"lost_percent":	0,
			"sender":	false
		}
	}
}
"""

IPERF3_REFUSED = """\
{
	"start":	{
		"connected":	[],
		"version":	"iperf 3.12"
	},
	"intervals":	[],
	"end":	{
	},
	"error":	"unable to connect to server: Connection refused"
}
"""

IPERF3_BUSY = "iperf3: error - unable to start listener for connections: Address already in use\niperf3: exiting\n"

TOPOLOGY = resolve_topology(
    parse_model(
        TopologySpec,
        {"datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}], "wan": {"latency": "1ms"}},
        "test",
    )
)


class Hosts:
    """A testbed in whose hosts every program prints what the test gives, by program and role."""

    def __init__(self, **scripts: str) -> None:
        self.topology = TOPOLOGY
        self.addresses = AddressBook(TOPOLOGY, 1)
        self.started: list[tuple[str, list[str]]] = []
        self.processes: list[subprocess.Popen[Any]] = []
        self._scripts = {"server": "echo 'Server listening on 5201 (test #1)'; exec sleep 60", **scripts}

    def spawn(self, host: str, argv: list[str], **popen: Any) -> "subprocess.Popen[Any]":
        self.started.append((host, argv))
        role = "server" if "--server" in argv else "client" if "--client" in argv else argv[0]
        process = subprocess.Popen(["sh", "-c", self._scripts[role]], **popen)
        self.processes.append(process)
        return process

    def arguments(self, role: str) -> dict[str, list[str]]:
        return {host: argv for host, argv in self.started if f"--{role}" in argv}


def printing(folder: Path, text: str, status: int = 0) -> str:
    path = folder / f"output-{len(list(folder.iterdir()))}"
    path.write_text(text)
    return f"cat {path}; exit {status}"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iperf3, "PATIENCE_S", 0.1)
    monkeypatch.setattr(iperf3, "settling_s", lambda _: 0)


@pytest.mark.parametrize(
    ("output", "goodput_bps"), [(IPERF3_TCP, 36352661393.559349), (IPERF3_UDP, 19978943.642749804)]
)
def test_goodput_is_what_the_receiver_saw(output: str, goodput_bps: float) -> None:
    assert parse_iperf3(output) == goodput_bps


def test_iperf3_error_is_reported() -> None:
    with pytest.raises(ValueError, match=r"^iperf3: unable to connect to server: Connection refused$"):
        parse_iperf3(IPERF3_REFUSED)


@pytest.mark.parametrize(
    "output",
    [
        "",
        "iperf3: error\nnew line",
        "null",
        "[]",
        "3",
        "{}",
        '{"end": {}}',
        '{"end": {"sum_received": {}}}',
        '{"end": {"sum_received": {"bits_per_second": null}}}',
        IPERF3_TCP[: len(IPERF3_TCP) // 2],
    ],
)
def test_output_that_is_no_result_is_refused_in_one_line(output: str) -> None:
    with pytest.raises(ValueError, match=r"^iperf3 printed no result: ") as refused:
        parse_iperf3(output)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(("rtt_s", "seconds"), [(0.0, 1), (0.01, 1), (0.08, 2), (0.2, 5), (1.0, 25)])
def test_settling_time_is_whole_seconds_of_enough_round_trips(rtt_s: float, seconds: int) -> None:
    assert settling_s(rtt_s) == seconds


def test_every_flow_is_measured_from_its_source_to_its_destination(tmp_path: Path) -> None:
    hosts = Hosts(client=printing(tmp_path, IPERF3_TCP))
    flows = [Flow("east-0", "west-1", 8), Flow("west-0", "east-1", udp_offered_bps=19_000_000)]
    assert measure_goodput(hosts, flows, rtt_s=0.08, seconds=5) == [36352661393.559349] * 2
    assert set(hosts.arguments("server")) == {"west-1", "east-1"}
    tcp, udp = hosts.arguments("client")["east-0"], hosts.arguments("client")["west-0"]
    assert tcp[tcp.index("--client") + 1] == "10.1.1.3"
    assert udp[udp.index("--client") + 1] == "10.1.0.3"
    for argv in (tcp, udp):
        assert (argv[argv.index("--omit") + 1], argv[argv.index("--time") + 1]) == ("2", "5")
    assert tcp[tcp.index("--parallel") + 1] == "8"
    assert "--udp" not in tcp
    assert udp[udp.index("--bitrate") + 1] == "19000000"


def test_all_servers_listen_before_the_first_client_starts(tmp_path: Path) -> None:
    hosts = Hosts(client=printing(tmp_path, IPERF3_TCP))
    measure_goodput(hosts, [Flow("east-0", "west-0"), Flow("west-0", "east-0")], rtt_s=0.01)
    assert ["--server" in argv for _, argv in hosts.started] == [True, True, False, False]


def failing(folder: Path) -> dict[str, tuple[dict[str, str], str]]:
    return {
        "a client": (
            {"client": printing(folder, IPERF3_REFUSED, 1)},
            "east-0 to west-0: iperf3: unable to connect to server: Connection refused",
        ),
        "a server": ({"server": printing(folder, IPERF3_BUSY, 1)}, "west-0: iperf3 does not listen: iperf3: exiting"),
        "a mute server": ({"server": "exit 1"}, "west-0: iperf3 does not listen"),
        "a hanging client": ({"client": "exec sleep 60"}, "east-0 to west-0: iperf3 hung for 0 s"),
    }


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("what", ["a client", "a server", "a mute server", "a hanging client"])
def test_a_measurement_that_fails_is_reported_and_leaves_no_process(tmp_path: Path, what: str) -> None:
    scripts, text = failing(tmp_path)[what]
    hosts = Hosts(**scripts)
    with pytest.raises(MeasurementError) as failed:
        measure_goodput(hosts, [Flow("east-0", "west-0")], rtt_s=0.0, seconds=0)
    assert str(failed.value) == text
    assert all(process.poll() is not None for process in hosts.processes)


@pytest.mark.usefixtures("impatient")
def test_datagrams_are_sent_again_where_the_first_one_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iperf3, "PATIENCE_S", 2.0)
    first = tmp_path / "first"
    hangs = f"test -e {first} || {{ touch {first}; exec sleep 60; }}; "
    hosts = Hosts(client=hangs + printing(tmp_path, IPERF3_UDP))
    flow = Flow("east-0", "west-0", udp_offered_bps=20_000_000)
    assert measure_goodput(hosts, [flow], rtt_s=0.0, seconds=0) == [19978943.642749804]
    assert len(hosts.processes) == 4
    assert all(process.poll() is not None for process in hosts.processes)


@pytest.mark.usefixtures("impatient")
def test_datagrams_of_which_none_arrives_are_not_sent_forever() -> None:
    hosts = Hosts(client="exec sleep 60")
    with pytest.raises(MeasurementError, match=r"^east-0 to west-0: iperf3 hung for 0 s$"):
        measure_goodput(hosts, [Flow("east-0", "west-0", udp_offered_bps=20_000_000)], rtt_s=0.0, seconds=0)
    assert len(hosts.processes) == 8


def test_a_measurement_leaves_no_server_behind(tmp_path: Path) -> None:
    hosts = Hosts(client=printing(tmp_path, IPERF3_UDP))
    measure_goodput(hosts, [Flow("east-0", "west-0")], rtt_s=0.01)
    assert all(process.poll() is not None for process in hosts.processes)
