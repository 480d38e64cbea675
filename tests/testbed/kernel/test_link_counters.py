"""Statistics parsed from the kernel's messages, and the counters that follow."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.testbed.kernel.link_counters import Counters, Statistic, parse_statistic, port_counters
from wanbed.testbed.kernel.port_shape import DEFAULT_CLASS, TRUNK_CLASS
from wanbed.testbed.network.gateway_plan import NetemPlan, WanPort, pair_class

PORT = WanPort(
    peer="west",
    peer_gateway="10.1.1.1",
    peer_subnet="10.1.1.0",
    mac="",
    peer_mac="",
    trunk=None,
    sources=("east-0", "east-1"),
    destinations=("west-0", "west-1", "west-2"),
    netem=NetemPlan(0, 1000),
)
MINORS = [
    pair_class(source, destination, len(PORT.destinations))
    for source in range(len(PORT.sources))
    for destination in range(len(PORT.destinations))
]


def statistic(minor: int, carried: int = 0, packets: int = 0, backlog: int = 0) -> Statistic:
    return Statistic(7, minor, 1, "htb", carried, packets, backlog, 0)


def leaf(minor: int, drops: int) -> Statistic:
    return Statistic(7, 0, minor, "netem", 0, 0, 0, drops)


CLASSES = [
    *(statistic(minor, 1000 * minor, minor, 10 * minor) for minor in MINORS),
    statistic(DEFAULT_CLASS, 500, 5, 7),
    statistic(TRUNK_CLASS, 123_456, 99, 5000),
]
QDISCS = [Statistic(7, 0, 0xFFFF, "htb", 0, 0, 0, 999), *(leaf(minor, minor % 5) for minor in (DEFAULT_CLASS, *MINORS))]


def test_every_pair_has_the_counters_of_its_own_class() -> None:
    port = port_counters("east", PORT, CLASSES, QDISCS)
    assert (port.source, port.destination) == ("east", "west")
    assert list(port.pairs) == [(source, destination) for source in PORT.sources for destination in PORT.destinations]
    for pair, minor in zip(port.pairs, MINORS, strict=True):
        assert port.pairs[pair] == Counters(1000 * minor, minor, 10 * minor, minor % 5)


def test_total_counts_all_packets_of_the_trunk() -> None:
    total = port_counters("east", PORT, CLASSES, QDISCS).total
    assert (total.wire_bytes, total.packets) == (123_456, 99)


def test_total_backlog_and_drops_include_the_default_class() -> None:
    total = port_counters("east", PORT, CLASSES, QDISCS).total
    assert total.backlog_bytes == 7 + sum(10 * minor for minor in MINORS)
    assert total.drops == DEFAULT_CLASS + sum(minor % 5 for minor in MINORS)


def test_the_root_qdiscs_drops_are_not_counted_again() -> None:
    idle = [statistic(minor) for minor in (TRUNK_CLASS, *MINORS)]
    assert port_counters("east", PORT, idle, QDISCS[:1]).total.drops == 0


def test_a_port_for_some_senders_has_their_pairs_only() -> None:
    second = [each for each in CLASSES if each.minor not in MINORS[:3]]
    port = port_counters("east", PORT, second, QDISCS, ["east-1"])
    assert list(port.pairs) == [("east-1", destination) for destination in PORT.destinations]


U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def payload(statistics: bytes, kind: bytes = b"htb\0") -> bytes:
    fields = struct.pack("=BxxxiIII", 0, 7, 0x10003, 0x10001, 0)
    return fields + attribute(1, kind) + attribute(2, b"options") + attribute(0x8000 | 7, statistics)


@given(U64, U32, U32, U32)
def test_the_numbers_are_those_of_the_message(carried: int, packets: int, backlog: int, drops: int) -> None:
    statistics = attribute(1, struct.pack("=QI", carried, packets)) + attribute(
        3, struct.pack("=IIIII", 9, backlog, drops, 1, 2)
    )
    assert parse_statistic(memoryview(payload(statistics))) == Statistic(
        7, 3, 1, "htb", carried, packets, backlog, drops
    )


@given(U64)
def test_more_packets_than_32_bits_hold_are_counted_in_64(packets: int) -> None:
    wide = attribute(1, struct.pack("=QI", 1, packets & 0xFFFFFFFF)) + attribute(8, struct.pack("=Q", packets))
    assert parse_statistic(memoryview(payload(wide))).packets == packets


def test_missing_statistics_are_zero() -> None:
    fields = struct.pack("=BxxxiIII", 0, 7, 0x10003, 0xFFFFFFFF, 0)
    assert parse_statistic(memoryview(fields)) == Statistic(7, 3, 0xFFFF, "", 0, 0, 0, 0)


@pytest.mark.parametrize("cut", [1, 8, 11])
def test_a_message_that_is_cut_off_is_reported(cut: int) -> None:
    with pytest.raises(OSError, match="cut off"):
        parse_statistic(memoryview(payload(attribute(1, bytes(12)))[:-cut]))
