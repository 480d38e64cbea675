"""Testbeds come up beside each other, hosts are hosts, and nothing stays behind."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.ray.machine_namespaces import links_outside
from wanbed.testbed.claims.processes import marked_processes
from wanbed.testbed.claims.registry import STATE_ROOT, claims
from wanbed.testbed.hosts.ping import ping
from wanbed.testbed.measurement.iperf3 import Flow, measure_goodput
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.testbed import Testbed, bring_up

Resolve = Callable[[dict[str, Any]], Topology]


def network(latency: str = "10ms", hosts: int = 2) -> dict[str, Any]:
    return {
        "datacenters": [{"name": "east", "hosts": hosts}, {"name": "west", "hosts": hosts}],
        "wan": {"latency": latency, "rate": "1Gbit", "node_pair_rate": "100Mbit"},
    }


@pytest.fixture(scope="module")
def testbed(substrate: str, resolved: Resolve) -> Iterator[Testbed]:
    """One for all tests that only look at it, or leave it as it was.

    Its WAN is above 34 Gbit/s, in fractions of a unit and of a millisecond.
    """
    document = network()
    document["wan"] = {"latency": "0.75ms", "rate": "36Gbit", "node_pair_rate": "9.5Gbit", "jitter": "12.5us"}
    with bring_up(resolved(document), substrate=substrate) as testbed:
        yield testbed


def said_by(testbed: Testbed, host: str, *argv: str) -> str:
    process = testbed.spawn(host, list(argv), stdout=subprocess.PIPE, text=True)
    return str(process.communicate(timeout=150)[0]).strip()


def test_a_measurement_listens_at_the_testbeds_address_alone(testbed: Testbed) -> None:
    with ThreadPoolExecutor(1) as aside:
        measured = aside.submit(measure_goodput, testbed, [Flow("east-0", "west-0")], rtt_s=0.002, seconds=1)
        listening = set[str]()
        while not measured.done():
            listening |= {line.split()[4] for line in said_by(testbed, "west-0", "ss", "-Hlntu").splitlines()}
    assert measured.result()
    assert {address.rpartition(":")[0] for address in listening} == {
        testbed.addresses.address(testbed.topology.host("west-0"))
    }


def test_two_testbeds_at_once_do_not_meet_and_what_they_leave_running_ends_with_them(
    substrate: str, resolved: Resolve
) -> None:
    before = links_outside()
    with (
        bring_up(resolved(network("10ms")), substrate=substrate, source="one") as one,
        bring_up(resolved(network("30ms")), substrate=substrate, source="other") as other,
    ):
        addresses = [{t.addresses.address(host) for host in t.topology.hosts} for t in (one, other)]
        assert not addresses[0] & addresses[1]
        # The shortest of the echoes: what else the machine does can only add to the others.
        assert ping(one.spawn, "east-0", "west-1", 20).shortest_ms == pytest.approx(20, abs=1)
        assert ping(other.spawn, "east-0", "west-1", 20).shortest_ms == pytest.approx(60, abs=1)
        assert {claim.record.source for claim in claims()} >= {"one", "other"}
        left = "setsid sleep 1000 >/dev/null 2>&1 & echo started"
        assert said_by(one, "east-0", "sh", "-c", left) == "started", "and it ends with its testbed"
        marks = (one.identifier, other.identifier)
    assert not any(marked_processes(mark) for mark in marks)
    assert links_outside() == before
    assert not any(claim.record.source in {"one", "other"} for claim in claims())


def test_a_host_has_its_own_name_network_and_name_service(testbed: Testbed) -> None:
    assert said_by(testbed, "east-1", "hostname") == "east-1"
    assert said_by(testbed, "east-1", "ls", "/sys/class/net").split() == ["eth0", "lo"]
    west = testbed.addresses.address(testbed.topology.host("west-0"))
    assert said_by(testbed, "east-1", "getent", "hosts", "west-0").split() == [west, "west-0"]


def test_a_look_up_of_an_unknown_name_is_refused_and_not_waited_for(testbed: Testbed) -> None:
    # A name server that does not answer is waited for; that of a host's resolv.conf refuses what it is asked.
    look_up = (
        "import socket\n"
        "try:\n"
        "    socket.getaddrinfo('unknown.example', 80)\n"
        "except socket.gaierror:\n"
        "    print('unknown')\n"
        "(server,) = [line.split()[1] for line in open('/etc/resolv.conf') if line.startswith('nameserver')]\n"
        "with socket.socket(type=socket.SOCK_DGRAM) as asking:\n"
        "    asking.connect((server, 53))\n"
        "    asking.send(b'?')\n"
        "    try:\n"
        "        asking.recv(1)\n"
        "    except ConnectionRefusedError:\n"
        "        print('refused')\n"
    )
    machine = Path("/etc/resolv.conf").read_text()
    assert said_by(testbed, "east-1", sys.executable, "-c", look_up).split() == ["unknown", "refused"]
    assert Path("/etc/resolv.conf").read_text() == machine


def test_hosts_inside_a_datacenter_are_near(testbed: Testbed) -> None:
    assert ping(testbed.spawn, "east-0", "east-1", 50).shortest_ms < 0.6


def test_counters_tell_which_node_pair_carried_what(testbed: Testbed) -> None:
    before = {(port.source, port.destination): port for port in testbed.read_counters()}
    ping(testbed.spawn, "east-0", "west-1", 50)
    after = {(port.source, port.destination): port for port in testbed.read_counters()}
    for direction, pair in ((("east", "west"), ("east-0", "west-1")), (("west", "east"), ("west-1", "east-0"))):
        carried = {
            each: counters.wire_bytes - before[direction].pairs[each].wire_bytes
            for each, counters in after[direction].pairs.items()
        }
        # An echo is 98 bytes at the Ethernet layer.
        assert carried.pop(pair) == 50 * 98
        assert set(carried.values()) == {0}
        assert after[direction].total.wire_bytes - before[direction].total.wire_bytes == 50 * 98


def test_the_record_of_hosts_has_every_host(testbed: Testbed) -> None:
    hosts = json.loads((Path(STATE_ROOT) / testbed.folder.name / "hosts.json").read_text())["hosts"]
    assert set(hosts) == {"east-0", "east-1", "west-0", "west-1"}


def test_qdiscs_read_back_as_asked(testbed: Testbed) -> None:
    port = testbed.read_qdiscs()["east wan1"]
    trim_ns = testbed.facts.trim_ns
    assert port["htb_trunk_bytes_per_s"] == 36_000_000_000 // 8
    pairs = port["classes"][-1]
    assert pairs["classes"] == "1:10 to 1:13"
    assert pairs["ceiling_bytes_per_s"] == 36_000_000_000 // 8
    assert pairs["netem"]["rate_bytes_per_s"] == 9_500_000_000 // 8
    assert pairs["netem"]["delay_ns"] == max(0, 750_000 - trim_ns)
    assert pairs["netem"]["jitter_ns"] == 12_500


def test_sysctls_and_offloads_read_back_of_hosts_and_gateways(testbed: Testbed) -> None:
    testbed.use_tcp(TcpSettings(window_bytes=2**20, congestion="reno"))
    try:
        sysctls, offloads = testbed.read_sysctls(), testbed.read_offloads()
    finally:
        testbed.use_tcp(TcpSettings())
    assert sysctls.keys() == {"east-0", "east-1", "west-0", "west-1"}
    assert sysctls["east-0"] == sysctls["west-0"]
    assert sysctls["east-0"]["net.ipv4.tcp_congestion_control"] == "reno"
    assert (sysctls["east-0"]["net.ipv4.tcp_rmem"] or "").endswith(" 1499136")
    gateways = {"east host0", "east host1", "east wan1", "west host0", "west host1", "west wan0"}
    assert offloads.keys() == {f"{host} eth0" for host in sysctls} | gateways
    for text in offloads.values():
        assert text["mtu_bytes"] == 1500
        assert text["tcp-segmentation-offload"] is True


def test_a_testbed_that_fails_on_its_way_up_leaves_nothing(
    substrate: str, resolved: Resolve, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[str] = []

    def refuse(*_: object, **__: object) -> None:
        # Other tests' testbeds come and go meanwhile: only this one's traces tell.
        began.extend(each.record.identifier for each in claims() if each.record.source == "doomed")
        raise RuntimeError("no route today")

    monkeypatch.setattr("wanbed.testbed.testbed.attach_host", refuse)
    with (
        pytest.raises(RuntimeError, match="no route today"),
        bring_up(resolved(network(hosts=1)), substrate=substrate, source="doomed"),
    ):
        pass
    assert len(began) == 1
    assert not {claim.record.identifier for claim in claims()} & set(began)
    assert not marked_processes(began[0])
    assert not list(STATE_ROOT.glob(f"*{began[0]}*"))
