"""When the chunks of each kind of queue may go."""

import pytest

from wanbed.workloads.transport.chunk_queues import ChunkQueue, CreditQueue, QueuedChunk, RelayQueue, TurnQueue
from wanbed.workloads.transport.frame import FrameError, FrameHeader, FrameKind


class Silent:
    """A source that need not know."""

    def begun(self) -> None:
        pass

    def accepted(self) -> None:
        pass


def chunk(offset: int = 0, owner: int = 0, microbatch: int = 0) -> QueuedChunk:
    header = FrameHeader(FrameKind.ACTIVATION, owner, 0, microbatch, 100, offset, 4)
    return QueuedChunk(header, memoryview(bytes(4)), Silent())


def offsets(queue: ChunkQueue) -> list[int]:
    """What may go now, in order."""
    found = []
    while queue.ready:
        head = queue.head
        assert queue.pop() is head
        found.append(head.header.offset)
    return found


def test_a_plain_queue_is_first_in_first_out() -> None:
    queue = ChunkQueue()
    assert queue.empty
    assert not queue.ready
    for offset in (3, 1, 2):
        queue.add(chunk(offset))
    assert not queue.empty
    assert offsets(queue) == [3, 1, 2]
    assert queue.empty


def test_no_more_than_the_window_is_at_the_peer() -> None:
    queue = CreditQueue()
    for offset in range(5):
        queue.add(chunk(offset))
    assert offsets(queue) == []
    queue.resize(2)
    assert offsets(queue) == [0, 1]
    queue.grant(1)
    assert offsets(queue) == [2]
    queue.resize(3)
    assert offsets(queue) == [3]
    assert not queue.empty
    queue.grant(3)
    assert offsets(queue) == [4]


def test_a_narrower_window_waits_until_enough_has_come_back() -> None:
    queue = CreditQueue()
    queue.resize(3)
    for offset in range(5):
        queue.add(chunk(offset))
    assert offsets(queue) == [0, 1, 2]
    queue.resize(1)
    for expected in ([], [], [3]):
        queue.grant(1)
        assert offsets(queue) == expected


def test_credit_for_more_than_was_sent_is_refused() -> None:
    queue = CreditQueue()
    queue.resize(2)
    queue.add(chunk())
    assert offsets(queue) == [0]
    queue.grant(1)
    with pytest.raises(FrameError, match="credit for 1 chunks more than it was sent"):
        queue.grant(1)


def test_the_first_credit_of_a_relay_is_its_window() -> None:
    queue = RelayQueue()
    for offset in range(4):
        queue.add(chunk(offset))
    queue.grant(2)
    assert offsets(queue) == [0, 1]
    queue.grant(2)
    assert offsets(queue) == [2, 3]
    queue.grant(2)
    with pytest.raises(FrameError, match="credit for 1 chunks"):
        queue.grant(1)


def test_the_next_transfer_may_go_when_all_chunks_of_the_one_before_have_begun() -> None:
    queue = TurnQueue([(1, 0), (0, 0)], 2)
    queue.add(chunk(10, owner=0))
    queue.add(chunk(11, owner=0))
    assert not queue.ready
    assert not queue.empty
    queue.add(chunk(20, owner=1))
    assert offsets(queue) == [20]
    queue.add(chunk(21, owner=1))
    assert offsets(queue) == [21, 10, 11]
    assert queue.empty
