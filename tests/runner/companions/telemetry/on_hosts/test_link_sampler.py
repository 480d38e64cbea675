from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.records.schema import LinkSample
from wanbed.results.records.trial_tables import LINK_TABLE
from wanbed.runner.companions.telemetry.on_hosts.link_sampler import LinkSampler, Ports
from wanbed.testbed.kernel.link_counters import Counters, PortCounters

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
    assert [sample.wire_bytes for sample in samples] == [0, 3000, 8000]
    assert [sample.packets for sample in samples] == [0, 3, 10]
    assert [sample.drops for sample in samples] == [0, 0, 3]
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
