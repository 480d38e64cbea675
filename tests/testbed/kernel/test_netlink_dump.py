"""Splitting of netlink messages and attributes."""

import struct

import pytest

from wanbed.testbed.kernel.netlink_dump import split_attributes, split_messages


def message(kind: int, payload: bytes, sequence: int = 5) -> bytes:
    return struct.pack("=IHHII", 16 + len(payload), kind, 2, sequence, 0) + payload + bytes(-len(payload) % 4)


def test_messages_of_another_request_are_passed_over() -> None:
    data = message(36, b"1234567") + message(36, b"other", sequence=4) + message(3, bytes(4))
    assert [(kind, bytes(part)) for kind, part in split_messages(data, 5)] == [(36, b"1234567"), (3, bytes(4))]


@pytest.mark.parametrize("cut", [1, 8, 11])
def test_a_message_that_is_cut_off_is_reported(cut: int) -> None:
    whole = message(36, bytes(16))
    with pytest.raises(OSError, match="cut off"):
        list(split_messages(whole[: len(whole) - cut], 5))


def test_nested_flag_is_removed_from_attribute_kinds() -> None:
    data = struct.pack("=HH3sxHH4s", 7, 2, b"abc", 8, 0x8000 | 9, b"wxyz")
    assert [(kind, bytes(value)) for kind, value in split_attributes(memoryview(data))] == [(2, b"abc"), (9, b"wxyz")]


@pytest.mark.parametrize("length", [0, 3, 9])
def test_an_attribute_of_no_possible_length_is_reported(length: int) -> None:
    with pytest.raises(OSError, match="cut off"):
        list(split_attributes(memoryview(struct.pack("=HH4x", length, 1))))
