"""Payloads that nobody reads: lengths arrive, contents do not, and chunks may come in pieces before they are read."""

import random
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.transport.event import Closed, Failed, Received, Sent
from wanbed.workloads.transport.frame import (
    CHUNK_BYTES,
    HEADER_BYTES,
    SHUTDOWN,
    Cutting,
    FrameHeader,
    FrameKind,
    decode_header,
)

PATIENCE_S = 60
MARKS = [1, 20_000, CHUNK_BYTES]
SIZES = [1, 30_000, CHUNK_BYTES, 3 * CHUNK_BYTES + 4321]


def events_until_closed(end) -> list:
    events = []
    while not isinstance(event := end.events.get(timeout=PATIENCE_S), Closed):
        if isinstance(event, Failed):
            raise event.error
        events.append(event)
    return events


@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("size_bytes", SIZES)
@pytest.mark.parametrize("unread_bytes", MARKS)
@pytest.mark.parametrize("blank", [False, True])
def test_messages_arrive_with_their_length_and_their_bytes_unless_blank(
    join: Callable, connections: int, size_bytes: int, unread_bytes: int, blank: bool
) -> None:
    ends = join(connections, size_bytes, unread_bytes=unread_bytes, blank=blank)
    payloads = [random.randbytes(size_bytes) for _ in range(4)]
    for end, kind in zip(ends, (MessageKind.ACTIVATION, MessageKind.GRADIENT), strict=True):
        for microbatch, payload in enumerate(payloads):
            end.transport.send(0, Message(kind, microbatch), memoryview(payload))
        end.transport.close()
    for end in ends:
        events = events_until_closed(end)
        received = {event.message.microbatch: event.payload for event in events if isinstance(event, Received)}
        assert {event.message.microbatch for event in events if isinstance(event, Sent)} == set(range(4))
        assert [received[microbatch].nbytes for microbatch in range(4)] == [size_bytes] * 4
        for microbatch, payload in enumerate(payloads):
            assert bytes(received[microbatch]) == (bytes(size_bytes) if blank else payload)


def test_what_is_sent_are_headers_and_zeros(join_by_hand: Callable) -> None:
    size_bytes = 2 * CHUNK_BYTES
    (bare,), upper = join_by_hand(1, size_bytes, blank=True)
    upper.transport.send(0, Message(MessageKind.GRADIENT, 3), memoryview(b"\x5a" * size_bytes))
    bare.settimeout(PATIENCE_S)
    with bare.makefile("rb") as stream:
        lengths = 0
        while lengths < size_bytes:
            header = decode_header(stream.read(HEADER_BYTES))
            assert (header.kind, header.number, header.offset) == (FrameKind.GRADIENT, 3, lengths)
            assert stream.read(header.length) == bytes(header.length)
            lengths += header.length


@pytest.mark.parametrize("blank", [False, True])
@pytest.mark.parametrize("unread_bytes", MARKS)
def test_a_frame_may_arrive_byte_by_byte(join_by_hand: Callable, unread_bytes: int, blank: bool) -> None:
    size_bytes = CHUNK_BYTES - 77
    (bare,), upper = join_by_hand(1, size_bytes, unread_bytes=unread_bytes, blank=blank)
    bare.setblocking(True)
    cutting = Cutting(size_bytes, 1)
    stream = b""
    for index in range(cutting.chunks):
        offset, length = cutting.chunk(index)
        stream += FrameHeader(FrameKind.ACTIVATION, 0, 0, 0, size_bytes, offset, length).encode() + bytes(length)
    stream += SHUTDOWN.encode()
    last = len(stream) - HEADER_BYTES
    bounds = [0, 7, HEADER_BYTES, 30_000, 100_000, 100_001, last - 5, last - 1, last, last + 3]
    for start, end in pairwise([*bounds, len(stream)]):
        bare.sendall(stream[start:end])
        time.sleep(0.002)
        if end == last:
            # Nothing follows yet that could push the last bytes over a mark.
            event = upper.events.get(timeout=PATIENCE_S)
            assert isinstance(event, Received)
            assert event.payload.nbytes == size_bytes
    upper.transport.close()
    assert isinstance(upper.events.get(timeout=PATIENCE_S), Closed)
