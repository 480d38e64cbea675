"""Whatever windows, connections, sharing and sizes are drawn: every transfer arrives, and no rank waits for itself."""

from collections import Counter
from queue import Empty

from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.transport.event import Closed, Failed, Received

PATIENCE_S = 20
MOST_BYTES = 6_000_000
"""Of all transfers of a drawn example together: so that it takes a fraction of a second."""


@st.composite
def shapes(draw: st.DrawFn) -> dict:
    """Cells and pipelines, windows from 4 KiB, up to 64 connections, and transfers of any number of chunks."""
    cell = draw(st.sampled_from([0, 2, 2, 3]))
    stages, microbatches = draw(st.sampled_from([2, 2, 3])), draw(st.integers(1, 2))
    pipelines = max(1, cell) * draw(st.sampled_from([1, 1, 2]))
    transfers = 2 * pipelines * (stages - 1) * microbatches
    turns = [(each, microbatch) for microbatch in range(microbatches) for each in range(cell)]
    connections = draw(st.sampled_from([1, 2, 8, 31, 32, 33, 48, 64]))
    while connections * pipelines * stages > 300:
        connections //= 2
    return {
        "pipelines": pipelines,
        "stages": stages,
        "cell": cell,
        "turns": draw(st.sampled_from([[], turns])),
        "microbatches": microbatches,
        "connections": connections,
        "window_bytes": draw(st.sampled_from([4, 8, 24, 96, 1024])) * 1024,
        "transfer_bytes": draw(st.integers(1, MOST_BYTES // transfers) | st.just(MOST_BYTES // transfers)),
        "blank": draw(st.booleans()),
    }


@examples(40, drawn_anew=400)
@given(shapes())
def test_every_transfer_arrives_both_ways_at_once(mesh: type, shape: dict) -> None:
    stages, payload = shape["stages"], bytes(shape["transfer_bytes"])
    with mesh(**shape) as joined:
        for rank, end in joined.ends.items():
            for microbatch in range(shape["microbatches"]):
                if rank % stages < stages - 1:
                    end.transport.send(0, Message(MessageKind.ACTIVATION, microbatch), memoryview(payload))
                if rank % stages:
                    end.transport.send(0, Message(MessageKind.GRADIENT, microbatch), memoryview(payload))
            end.transport.close()
        for rank, end in joined.ends.items():
            neighbours = (rank % stages > 0) + (rank % stages < stages - 1)
            assert received_until_closed(rank, end) == neighbours * shape["microbatches"]


def received_until_closed(rank: int, end) -> int:
    """How many transfers a rank received until all its peers had said goodbye."""
    counts: Counter = Counter()
    while not counts[Closed]:
        try:
            event = end.events.get(timeout=PATIENCE_S)
        except Empty:
            raise AssertionError(f"rank {rank} waits for ever, after {dict(counts)}") from None
        if isinstance(event, Failed):
            raise event.error
        counts[type(event)] += 1
    return counts[Received]
