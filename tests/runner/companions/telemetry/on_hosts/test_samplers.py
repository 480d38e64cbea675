"""The readings of each sampler, and the rows and facts that they make."""

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.present import present
from tests.support.testbed.fake_pynvml import FakeGpu, FakePynvml
from wanbed.results.records.schema import GpuSample, LinkSample, TcpSample
from wanbed.results.records.trial_tables import GPU_TABLE, LINK_TABLE, TCP_TABLE
from wanbed.runner.companions.telemetry.on_hosts import samplers
from wanbed.runner.companions.telemetry.on_hosts.samplers import (
    GpuSampler,
    LinkSampler,
    LoadReading,
    LoadSampler,
    Ports,
    RdmaSampler,
    Round,
    SampledLoad,
    TcpSampler,
    machine_load,
)
from wanbed.runner.companions.telemetry.on_hosts.sampling import sampling
from wanbed.testbed.gpus.gpu_assignment import GpuAssignment
from wanbed.testbed.hosts import hosts_here
from wanbed.testbed.hosts.hosts_here import HostsHere
from wanbed.testbed.kernel.link_counters import Counters, PortCounters
from wanbed.testbed.kernel.processors import CpuTimes
from wanbed.testbed.kernel.rdma_devices import rdma_sent_bytes
from wanbed.testbed.kernel.tcp import TcpState
from wanbed.testbed.running_testbed import RunningTestbed


@pytest.fixture
def binding(monkeypatch: pytest.MonkeyPatch) -> FakePynvml:
    fake = FakePynvml([FakeGpu("GPU-1"), FakeGpu("GPU-2", refuses={"power"})])
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def hosts_owning(*uuids: str) -> RunningTestbed:
    """A testbed whose hosts own these GPUs, the first of them twice."""
    testbed = HostsHere()
    testbed.gpus = GpuAssignment({"east-0": (*uuids, *uuids[:1])}) if uuids else None
    return cast("RunningTestbed", testbed)


def sampled(*uuids: str) -> tuple[list[GpuSample], dict[str, str]]:
    """What a short trial leaves: its rows and facts."""
    with sampling((GpuSampler,), hosts_owning(*uuids), epoch_ns=0, dilation=1.0) as samples:
        pass
    return samples.tables[GPU_TABLE], samples.facts  # type: ignore[return-value]


def test_every_gpu_is_read_at_the_begin_and_the_end(binding: FakePynvml) -> None:
    samples, facts = sampled("GPU-2", "GPU-1")
    assert [sample.device for sample in samples] == ["GPU-1", "GPU-2"] * 2
    assert samples == sorted(samples, key=lambda sample: sample.time_ns)
    assert samples[0].utilization is not None
    assert [sample.power_w is None for sample in samples] == [False, True] * 2
    assert facts == {}


def test_nvml_is_closed_at_the_end(binding: FakePynvml) -> None:
    with ExitStack() as ending:
        GpuSampler.of(hosts_owning("GPU-1"), ending)
        assert binding.sessions == 1
    assert not binding.sessions


def test_a_lost_gpu_has_a_fault_and_the_others_are_still_read(binding: FakePynvml) -> None:
    samples, facts = sampled("GPU-0", "GPU-1", "GPU-2")
    assert [sample.device for sample in samples] == ["GPU-1", "GPU-2"] * 2
    assert facts == {"nvml_fault": "GPU-0: NVML: Not Found"}


def test_without_nvml_a_trial_has_a_fault_and_no_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    samples, facts = sampled("GPU-1")
    assert samples == []
    assert "nvidia-ml-py" in facts["nvml_fault"]


def test_where_hosts_own_no_gpu_nvml_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert GpuSampler.of(hosts_owning(), ExitStack()) is None


MS = 1_000_000

Reading = tuple[int, Ports]

NOTHING = Counters(0, 0, 0, 0)

USED, UNUSED = ("east-0", "west-0"), ("east-1", "west-0")


def port(
    total: Counters, used: Counters, unused: Counters = NOTHING, ends: tuple[str, str] = ("east", "west")
) -> PortCounters:
    return PortCounters(*ends, total, {USED: used, UNUSED: unused})


READINGS: list[Reading] = [
    (5 * MS, [port(Counters(1000, 10, 0, 1), Counters(900, 9, 0, 1), Counters(100, 1, 0, 0))]),
    (85 * MS, [port(Counters(4000, 13, 700, 1), Counters(3900, 12, 700, 1), Counters(100, 1, 0, 0))]),
    (165 * MS, [port(Counters(9000, 20, 0, 4), Counters(8900, 19, 0, 4), Counters(100, 1, 0, 0))]),
]


def link_samples(readings: list[Reading], dilation: float = 1.0) -> list[LinkSample]:
    return LinkSampler(list).tables(readings, dilation)[LINK_TABLE]


def test_samples_count_from_the_first_reading() -> None:
    samples = [sample for sample in link_samples(READINGS) if sample.scope == "link"]
    counted = [(0, 0, 0), (3000, 3, 0), (8000, 10, 3)]
    assert [(sample.wire_bytes, sample.packets, sample.drops) for sample in samples] == counted
    assert {(sample.source, sample.destination) for sample in samples} == {("east", "west")}


def test_a_backlog_is_that_of_its_moment() -> None:
    assert [sample.backlog_bytes for sample in link_samples(READINGS) if sample.scope == "link"] == [0, 700, 0]


def test_a_node_pair_is_there_only_if_something_crossed_it() -> None:
    pairs = [sample for sample in link_samples(READINGS) if sample.scope == "node_pair"]
    assert {(sample.source, sample.destination) for sample in pairs} == {USED}
    assert [sample.wire_bytes for sample in pairs] == [0, 3000, 8000]


def test_every_directed_link_is_there_even_an_idle_one() -> None:
    idle = port(NOTHING, NOTHING, ends=("west", "east"))
    readings = [(time_ns, [*ports, idle]) for time_ns, ports in READINGS]
    links = [sample for sample in link_samples(readings) if sample.scope == "link"]
    assert [(sample.source, sample.wire_bytes) for sample in links] == [
        *(("east", carried) for carried in (0, 3000, 8000)),
        *(("west", 0) for _ in READINGS),
    ]


def test_packets_that_could_not_be_counted_are_unknown() -> None:
    def without_packets(each: PortCounters) -> PortCounters:
        pairs = {pair: counters._replace(packets=None) for pair, counters in each.pairs.items()}
        return replace(each, total=each.total._replace(packets=None), pairs=pairs)

    readings = [(time_ns, [without_packets(each) for each in ports]) for time_ns, ports in READINGS]
    assert {sample.packets for sample in link_samples(readings)} == {None}


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**6)), min_size=1, max_size=10))
def test_samples_are_in_order_and_never_fall(steps: list[tuple[int, int]]) -> None:
    readings: list[Reading] = []
    time_ns = carried = 0
    for pause_ns, size in steps:
        time_ns, carried = time_ns + pause_ns, carried + size
        counters = Counters(carried, carried // 100, 0, 0)
        readings.append((time_ns, [port(counters, counters)]))
    for scope in ("link", "node_pair"):
        samples = [sample for sample in link_samples(readings) if sample.scope == scope]
        assert len(samples) in {0, len(readings)}
        for before, after in pairwise(samples):
            assert before.time_ns <= after.time_ns
            assert before.wire_bytes <= after.wire_bytes
            assert (before.packets or 0) <= (after.packets or 0)


def test_it_reads_at_ten_hertz_and_more() -> None:
    assert LinkSampler.interval_s < 0.1


HERE = cast("RunningTestbed", HostsHere())


def readings(*busy: float, network_s: float | None = None) -> list[LoadReading]:
    """The times before the first and after each of these windows, of 250 ms each."""
    found = [LoadReading(10.0, CpuTimes(0, 0), network_s)]
    for share in busy:
        before = found[-1].cores
        cores = CpuTimes(before.total_ticks + 250, before.idle_ticks + round(250 * (1 - share)))
        spent_s = None if network_s is None else network_s + len(found) * 0.25 * 0.25
        found.append(LoadReading(10.0 + 0.25 * len(found), cores, spent_s))
    return found


def test_windows_in_which_no_core_was_to_spare_are_counted() -> None:
    assert machine_load(readings(1.0, 0.5, 0.98, 0.12)) == SampledLoad(pytest.approx(0.65), 0.5, None)


def facts(**busy: tuple[float, ...]) -> dict[str, Any]:
    """The facts of machines with these windows."""
    of_machines = {name: readings(*windows) for name, windows in busy.items()}
    rounds = zip(*of_machines.values(), strict=True)
    return LoadSampler(HERE).facts([(0, dict(zip(of_machines, each, strict=True))) for each in rounds])


def test_a_trial_that_was_over_in_one_window_has_no_load() -> None:
    assert facts(**{"": ()}) == facts() == {"machine_load": None}
    assert facts(node0=()) == {"machine_load": None, "machine_loads": {}}


def test_the_facts_of_this_machine_are_those_of_its_load() -> None:
    assert facts(**{"": (1.0, 0.0)}) == {"machine_load": {"busy": 0.5, "saturated": 0.5, "network": None}}


def test_of_several_machines_the_busiest_counts_for_the_trial() -> None:
    found = facts(node0=(0.5, 0.5), node1=(1.0, 0.5))
    assert found["machine_load"] == {"busy": 0.75, "saturated": 0.5, "network": None}
    assert found["machine_loads"] == {
        "node0": {"busy": 0.5, "saturated": 0.0, "network": None},
        "node1": {"busy": 0.75, "saturated": 0.5, "network": None},
    }


def test_what_the_network_costs_is_reported_as_a_share_of_one_core() -> None:
    assert present(machine_load(readings(0.5, 0.5, network_s=7.0))).network == pytest.approx(0.25)


def test_the_load_is_not_sampled_in_virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LoadSampler.of(HERE, ExitStack()) is not None
    monkeypatch.setattr(samplers, "in_virtual_time", lambda: True)
    assert LoadSampler.of(HERE, ExitStack()) is None


def test_all_machines_are_read_at_one_time() -> None:
    cores = {"node0": CpuTimes(9, 3), "node1": CpuTimes(8, 2)}
    testbed = SimpleNamespace(cpu_times=lambda: cores, network_cpu_time_s=lambda: None)
    read = LoadSampler(cast("RunningTestbed", testbed)).read()
    assert {name: reading.cores for name, reading in read.items()} == cores
    assert len({reading.time_s for reading in read.values()}) == 1


def counter(devices: Path, device: str) -> Path:
    folder = devices / device / "ports/1/counters"
    folder.mkdir(parents=True)
    (folder / "port_xmit_data").write_text("1000")
    return folder / "port_xmit_data"


def racked(machines: Mapping[str, Path]) -> Any:
    def read() -> dict[str, int]:
        found = {name: rdma_sent_bytes(devices) for name, devices in machines.items()}
        return {f"{name} {port}": sent for name, ports in found.items() for port, sent in ports.items()}

    return SimpleNamespace(rdma_sent_bytes=read)


def test_what_every_port_has_sent_during_the_trial_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    used, idle = counter(tmp_path / "one", "mlx5_0"), counter(tmp_path / "other", "mlx5_0")
    testbed = racked({name: tmp_path / name for name in ("one", "other", "plain")})
    with sampling((RdmaSampler,), testbed, 0, 1.0) as samples:
        used.write_text("1000250")
    assert samples.facts == {"rdma_sent_bytes": {"one mlx5_0/1": 3_997_000, "other mlx5_0/1": 0}}
    assert idle.read_text() == "1000"


def test_without_devices_there_is_no_sampler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert RdmaSampler.of(racked({"one": tmp_path}), ExitStack()) is None
    monkeypatch.setattr(hosts_here, "rdma_sent_bytes", dict)
    assert RdmaSampler.of(cast("RunningTestbed", HostsHere()), ExitStack()) is None


STATE = TcpState(
    source="east-0",
    destination="west-0",
    source_port=41000,
    destination_port=20001,
    congestion="cubic",
    rtt_ns=80 * MS,
    rtt_variation_ns=4 * MS,
    shortest_rtt_ns=60 * MS,
    cwnd_segments=100,
    mss_bytes=1448,
    unacked_segments=90,
    unsent_bytes=5000,
    peer_window_bytes=4_000_000,
    delivery_rate_bps=50_000_000,
    delivery_app_limited=False,
    acked_bytes=10**9,
    sent_bytes=2 * 10**9,
    retransmitted_segments=3,
    window_limited_ns=200 * MS,
    buffer_limited_ns=100 * MS,
)


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> Callable[[TcpState], None]:
    """The fixed content of every kernel message, used instead of parsing it."""

    def say(state: TcpState) -> None:
        monkeypatch.setattr(samplers, "tcp_states", lambda messages, _: [state for _ in messages])

    return say


class Hosts:
    """A reader of some connections."""

    def __init__(self, connections: int = 1) -> None:
        self.connections = connections
        self.closed = False

    def read(self) -> list[memoryview]:
        return [memoryview(b"")] * self.connections

    def close(self) -> None:
        self.closed = True


def sampler(hosts: Hosts) -> TcpSampler:
    return TcpSampler(hosts, {})  # type: ignore[arg-type]


def tcp_samples(readings: list[tuple[int, Round]], dilation: float) -> list[TcpSample]:
    return sampler(Hosts()).tables(readings, dilation)[TCP_TABLE]


def test_durations_and_rates_are_those_of_the_experiment_and_bytes_stay(described: Callable[[TcpState], None]) -> None:
    described(STATE)
    (sample,) = tcp_samples([(250 * MS, [memoryview(b"")])], 2.0)
    assert sample == TcpSample(
        250 * MS,
        *STATE._replace(
            rtt_ns=40 * MS,
            rtt_variation_ns=2 * MS,
            shortest_rtt_ns=30 * MS,
            delivery_rate_bps=100_000_000,
            window_limited_ns=100 * MS,
            buffer_limited_ns=50 * MS,
        ),
    )


def test_what_was_not_measured_stays_unknown(described: Callable[[TcpState], None]) -> None:
    described(STATE._replace(shortest_rtt_ns=None, delivery_rate_bps=None))
    (sample,) = tcp_samples([(0, [memoryview(b"")])], 2.0)
    assert (sample.shortest_rtt_ns, sample.delivery_rate_bps) == (None, None)


def test_every_connection_of_a_round_has_the_rounds_time(described: Callable[[TcpState], None]) -> None:
    described(STATE)
    rounds = [(MS, [memoryview(b"")] * 2), (3 * MS, [memoryview(b"")])]
    assert [sample.time_ns for sample in tcp_samples(rounds, 1.0)] == [MS, MS, 3 * MS]


def test_rounds_without_connections_are_not_kept() -> None:
    assert sampler(Hosts(connections=2)).read() == [memoryview(b"")] * 2
    assert sampler(Hosts(connections=0)).read() is None


def test_the_reader_is_closed_at_the_end() -> None:
    hosts = Hosts()
    testbed = SimpleNamespace(tcp_state_reader=lambda: hosts, addresses=SimpleNamespace(host_names=dict))
    with ExitStack() as ending:
        TcpSampler.of(testbed, ending)  # type: ignore[arg-type]
        assert not hosts.closed
    assert hosts.closed


def test_sampling_takes_a_fiftieth_of_a_core_and_a_bounded_number_of_rounds_and_none_without_ranks() -> None:
    assert (TcpSampler.max_core_share, TcpSampler.max_readings, TcpSampler.reads_at_end) == (0.02, 300, False)
