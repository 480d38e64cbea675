import pytest

from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.transport.event import Event, Received
from wanbed.workloads.transport.frame import Cutting, FrameError, FrameHeader, FrameKind
from wanbed.workloads.transport.peer import Peer
from wanbed.workloads.transport.receive_buffers import Assembly, BufferPool


def test_new_buffers_use_the_preferred_memory() -> None:
    special = memoryview(bytearray(64))
    pool = BufferPool()
    pool.prefer(lambda size_bytes: special if size_bytes == 64 else None)
    assert pool.take(64) is special
    other = pool.take(32)
    assert other.nbytes == 32
    pool.give_back(special)
    pool.give_back(other)
    assert pool.take(64) is special
    assert pool.take(32) is other


CUTTING = Cutting(64 * 1024, 2)

MICROBATCH = 3


def header(index: int) -> FrameHeader:
    offset, length = CUTTING.chunk(index)
    return FrameHeader(FrameKind.ACTIVATION, 0, 0, MICROBATCH, CUTTING.total_bytes, offset, length)


def test_a_transfer_is_reported_once_all_its_chunks_are_there_and_none_of_them_may_come_again() -> None:
    events: list[Event] = []
    peer = Peer(1, "host-1", "127.0.0.1", None, 1)
    assembly = Assembly(peer, MessageKind.ACTIVATION, CUTTING, BufferPool(), events.append)
    chunks = reversed(range(CUTTING.chunks))
    for index in chunks:
        assert events == []
        delivery = assembly.place(header(index), index)
        with pytest.raises(FrameError, match="of microbatch 3 twice"):
            assembly.place(header(index), index)
        delivery.complete()
    (received,) = events
    assert isinstance(received, Received)
    assert received.message == Message(MessageKind.ACTIVATION, MICROBATCH)
    assert received.payload.nbytes == CUTTING.total_bytes
    with pytest.raises(FrameError, match="of microbatch 3 twice"):
        assembly.place(header(0), 0)
