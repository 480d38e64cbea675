"""Parsing of qdisc statistics from the kernel's messages."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.testbed.kernel.qdiscs.statistics import Statistic, parse_statistic

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
