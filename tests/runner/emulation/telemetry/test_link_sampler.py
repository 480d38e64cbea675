import threading
import time
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.emulation.telemetry import link_sampler
from runner.emulation.telemetry.link_sampler import LinkSampler, Reading, link_samples
from testbed.kernel.link_counters import Counters, PortCounters
from testbed.substrate.substrate import SubstrateError

MS = 1_000_000
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


def test_samples_count_from_the_first_reading() -> None:
    samples = [sample for sample in link_samples(READINGS, 1.0) if sample.scope == "link"]
    assert [sample.wire_bytes for sample in samples] == [0, 3000, 8000]
    assert [sample.packets for sample in samples] == [0, 3, 10]
    assert [sample.drops for sample in samples] == [0, 0, 3]
    assert {(sample.source, sample.destination) for sample in samples} == {("east", "west")}


def test_a_backlog_is_that_of_its_moment() -> None:
    assert [sample.backlog_bytes for sample in link_samples(READINGS, 1.0) if sample.scope == "link"] == [0, 700, 0]


def test_a_node_pair_is_there_only_if_something_crossed_it() -> None:
    pairs = [sample for sample in link_samples(READINGS, 1.0) if sample.scope == "node_pair"]
    assert {(sample.source, sample.destination) for sample in pairs} == {USED}
    assert [sample.wire_bytes for sample in pairs] == [0, 3000, 8000]


def test_every_directed_link_is_there_even_an_idle_one() -> None:
    idle = port(NOTHING, NOTHING, ends=("west", "east"))
    readings = [(time_ns, [*ports, idle]) for time_ns, ports in READINGS]
    links = [sample for sample in link_samples(readings, 1.0) if sample.scope == "link"]
    assert [(sample.source, sample.wire_bytes) for sample in links] == [
        *(("east", carried) for carried in (0, 3000, 8000)),
        *(("west", 0) for _ in READINGS),
    ]


def test_packets_that_could_not_be_counted_are_unknown() -> None:
    def without_packets(each: PortCounters) -> PortCounters:
        pairs = {pair: counters._replace(packets=None) for pair, counters in each.pairs.items()}
        return replace(each, total=each.total._replace(packets=None), pairs=pairs)

    readings = [(time_ns, [without_packets(each) for each in ports]) for time_ns, ports in READINGS]
    assert {sample.packets for sample in link_samples(readings, 1.0)} == {None}


def test_times_are_those_of_the_experiment() -> None:
    assert {sample.time_ns for sample in link_samples(READINGS, 2.5)} == {2 * MS, 34 * MS, 66 * MS}


def test_no_reading_makes_no_sample() -> None:
    assert link_samples([], 1.0) == []


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**6)), min_size=1, max_size=10), st.floats(1, 100))
def test_samples_are_in_order_and_never_fall(steps: list[tuple[int, int]], dilation: float) -> None:
    readings: list[Reading] = []
    time_ns = carried = 0
    for pause_ns, size in steps:
        time_ns, carried = time_ns + pause_ns, carried + size
        counters = Counters(carried, carried // 100, 0, 0)
        readings.append((time_ns, [port(counters, counters)]))
    for scope in ("link", "node_pair"):
        samples = [sample for sample in link_samples(readings, dilation) if sample.scope == scope]
        assert len(samples) in {0, len(readings)}
        for before, after in pairwise(samples):
            assert before.time_ns <= after.time_ns
            assert before.wire_bytes <= after.wire_bytes
            assert (before.packets or 0) <= (after.packets or 0)


class Network:
    """A testbed whose counters rise with every reading, and that fails when told to."""

    def __init__(self) -> None:
        self.readings = 0
        self.fault: Exception | None = None
        self.read_often = threading.Event()
        self.failed = threading.Event()

    def read_counters(self) -> list[PortCounters]:
        if self.fault is not None:
            self.failed.set()
            raise self.fault
        self.readings += 1
        if self.readings >= 5:
            self.read_often.set()
        counters = Counters(self.readings, self.readings, 0, 0)
        return [port(counters, counters)]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_sampler, "INTERVAL_S", 0.002)


def test_counters_are_read_at_the_start_all_the_while_and_at_the_end() -> None:
    network = Network()
    sampler = LinkSampler(network, time.monotonic_ns())  # type: ignore[arg-type]
    sampler.start()
    assert network.readings >= 1
    assert network.read_often.wait(5)
    before_stop = network.readings
    readings = sampler.stop()
    assert [ports[0].total.wire_bytes for _, ports in readings] == list(range(1, network.readings + 1))
    assert network.readings > before_stop
    assert all(one <= other for (one, _), (other, _) in pairwise(readings))


def test_times_count_from_the_epoch_and_are_never_before_it() -> None:
    network = Network()
    later = LinkSampler(network, time.monotonic_ns() + 3600 * 10**9)  # type: ignore[arg-type]
    later.start()
    assert {time_ns for time_ns, _ in later.stop()} == {0}
    earlier = LinkSampler(network, time.monotonic_ns() - 3600 * 10**9)  # type: ignore[arg-type]
    earlier.start()
    assert all(3600 * 10**9 <= time_ns < 3700 * 10**9 for time_ns, _ in earlier.stop())


@pytest.mark.parametrize("fault", [SubstrateError("the guest kernel ended"), OSError("a socket closed"), KeyError("x")])
def test_a_reading_that_fails_meanwhile_is_told_when_it_stops(fault: Exception) -> None:
    network = Network()
    sampler = LinkSampler(network, 0)  # type: ignore[arg-type]
    sampler.start()
    assert network.read_often.wait(5)
    network.fault = fault
    assert network.failed.wait(5)
    network.fault = None
    with pytest.raises(type(fault)) as told:
        sampler.stop()
    assert told.value is fault
    assert threading.active_count() == 1


def test_it_reads_at_ten_hertz_and_more() -> None:
    assert link_sampler.INTERVAL_S < 0.1
