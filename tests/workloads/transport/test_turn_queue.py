"""Turns are the same in every iteration, from the one that a training begins with."""

import pytest

from wanbed.workloads.transport.chunk_queues import QueuedChunk, TurnQueue
from wanbed.workloads.transport.frame import FrameHeader, FrameKind


def chunk(iteration: int, pipeline: int, microbatch: int) -> QueuedChunk:
    header = FrameHeader(FrameKind.ACTIVATION, pipeline, iteration, microbatch, 4, 0, 4)
    return QueuedChunk(header, memoryview(bytes(4)), None)  # type: ignore[arg-type] - nothing asks for its source


@pytest.mark.parametrize("first", [0, 3])
def test_transfers_leave_in_the_order_of_their_turns_from_the_first_iteration_on(first: int) -> None:
    turns = [(1, 0), (0, 0)]
    queue = TurnQueue(turns, 1, first)
    for iteration in (first + 1, first):
        for pipeline, microbatch in reversed(turns):
            queue.add(chunk(iteration, pipeline, microbatch))
    left = []
    while queue.ready:
        header = queue.pop().header
        left.append((header.iteration, header.owner, header.number))
    assert left == [(iteration, *turn) for iteration in (first, first + 1) for turn in turns]
    assert queue.empty
