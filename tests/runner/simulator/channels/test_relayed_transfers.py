"""Transfers that a DP-cell shares, chunk by chunk: which chunk goes when over which channel."""

from collections.abc import Mapping
from functools import partial
from itertools import permutations

import pytest

from tests.support.simulator.events import run_all
from wanbed.flow.channel import Known
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import Line
from wanbed.runner.simulator.channels.packet_channel import ChunkArrived
from wanbed.runner.simulator.channels.relayed_transfers import Leg, RelayedTransfers, WithinHost
from wanbed.workloads.message import MessageKind
from wanbed.workloads.transport.boundary import relay_window
from wanbed.workloads.transport.chunk_queues import ChunkQueue, QueuedChunk
from wanbed.workloads.transport.frame import Cutting

CHUNK_NS = 100
LATENCY_NS = 5

CUTTING = Cutting(16 * 2 * 16 * 1024, 2)
"""Sixteen chunks for each of two pipelines."""

WINDOW = relay_window(1)


class Recording:
    """A way that takes ``CHUNK_NS`` for each chunk, one after the other, and remembers them and its requests."""

    def __init__(self, events: EventQueue, *, chunk_ns: int = CHUNK_NS) -> None:
        self.line = Line(None, LATENCY_NS, headers=False)
        self.carried: list[tuple[int, int]] = []
        self.requests = 0
        self._events, self._chunk_ns = events, chunk_ns
        self._served: list[tuple[int, ChunkQueue, ChunkArrived]] = []
        self._is_busy = False

    def serve(self, queue: ChunkQueue, precedence: int, arrived: ChunkArrived) -> None:
        self._served = sorted([*self._served, (precedence, queue, arrived)], key=lambda served: served[0])

    def touch(self, now_ns: int) -> None:
        ready = next(((queue, arrived) for _, queue, arrived in self._served if queue.ready), None)
        if ready is None or self._is_busy:
            return
        queue, arrived = ready
        self._is_busy = True
        queue.head.source.begun()
        chunk = queue.pop()
        self.carried.append((chunk.header.owner, chunk.header.number))
        self._events.at(now_ns + self._chunk_ns, self._accept, (arrived, chunk, now_ns))

    def request(self, now_ns: int, size_bytes: int, known: Known) -> None:
        self.requests += 1
        known(now_ns + LATENCY_NS)

    def _accept(self, now_ns: int, sent: tuple[ChunkArrived, QueuedChunk, int]) -> None:
        arrived, chunk, begun_ns = sent
        self._is_busy = False
        chunk.source.accepted()
        self._events.at(now_ns + LATENCY_NS, lambda at_ns, _: arrived(begun_ns, at_ns, chunk), None)
        self.touch(now_ns)


class Cell:
    """Two pipelines that share their channels, and when their transfers are accepted and there."""

    def __init__(self, *, kind: MessageKind = MessageKind.ACTIVATION, turns: tuple[tuple[int, int], ...] = ()) -> None:
        self.events = EventQueue()
        self.across = [Recording(self.events) for _ in range(2)]
        self.near, self.far = (
            {pair: Recording(self.events, chunk_ns=0) for pair in permutations(range(2), 2)} for _ in range(2)
        )
        self.there_ns: dict[tuple[int, int], int] = {}
        self.released_ns: dict[int, int] = {}
        self.transfers = relayed(self.events, kind, self.across, (self.near, self.far), turns)

    def offer(self, at_ns: int, mate: int, microbatch: int = 0) -> None:
        def note(which: tuple[int, int], _left: int, _gone: int, _first: int, whole_ns: int) -> None:
            self.there_ns[which] = whole_ns

        def offer(now_ns: int, _: None) -> None:
            released = partial(self.released_ns.__setitem__, mate)
            self.transfers.offer(now_ns, mate, microbatch, partial(note, (mate, microbatch)), released)

        self.events.at(at_ns, offer, None)

    def run(self) -> list[list[tuple[int, int]]]:
        """Return the owners and microbatches of the chunks of each channel, in their order."""
        run_all(self.events)
        return [each.carried for each in self.across]


def relayed(
    events: EventQueue,
    kind: MessageKind,
    across: list[Recording],
    inside: tuple[Mapping[tuple[int, int], Leg], Mapping[tuple[int, int], Leg]],
    turns: tuple[tuple[int, int], ...] = (),
) -> RelayedTransfers:
    near, far = inside
    return RelayedTransfers(
        events, kind, CUTTING, across, near=near, far=far, connections=[1] * len(across), turns=turns
    )


def test_own_transfers_go_between_the_chunks_that_a_cell_mate_has_credit_for() -> None:
    cell = Cell()
    cell.offer(0, 0)
    cell.offer(50, 1)
    theirs, own = cell.run()
    assert theirs == [(0, 0)] * 16 + [(1, 0)] * 16
    # The first window of chunks is there before; for each that is sent one more comes behind those of its own.
    assert own == [(0, 0)] * WINDOW + [(1, 0)] * 16 + [(0, 0)] * (16 - WINDOW)
    assert cell.there_ns[0, 0] > cell.there_ns[1, 0]


def test_without_cell_mates_traffic_a_transfer_takes_the_channels_half_each() -> None:
    cell = Cell()
    cell.offer(0, 0)
    cell.run()
    # A chunk comes back over the far side in the latency of another way; to the mate it took one more before.
    assert cell.there_ns == {(0, 0): 16 * CHUNK_NS + 3 * LATENCY_NS}


def test_a_relay_gives_credit_a_quarter_of_the_window_at_a_time() -> None:
    cell = Cell()
    cell.offer(0, 0)
    cell.run()
    assert {pair: way.requests for pair, way in cell.near.items()} == {(1, 0): 16 // (WINDOW // 4), (0, 1): 0}


def test_a_sender_is_done_when_its_kernel_has_all_chunks() -> None:
    cell = Cell()
    cell.offer(0, 0)
    cell.run()
    # The last one may go to the mate once the fourth last one has been sent on.
    assert cell.released_ns[0] == 16 * CHUNK_NS


def test_in_planned_turns_a_channel_waits_for_the_transfer_whose_turn_it_is() -> None:
    cell = Cell(turns=((1, 0), (0, 0), (0, 1), (1, 1)))
    cell.offer(0, 0, 0)
    cell.offer(10, 0, 1)
    cell.offer(300, 1, 1)
    cell.offer(500, 1, 0)
    expected = [(1, 0)] * 16 + [(0, 0)] * 16 + [(0, 1)] * 16 + [(1, 1)] * 16
    assert cell.run() == [expected] * 2


def test_turns_begin_again_with_the_next_iteration() -> None:
    cell = Cell(turns=((1, 0), (0, 0)))
    for at_ns in (0, 90_000):
        cell.offer(at_ns, 0)
        cell.offer(at_ns + 10, 1)
    assert cell.run() == [([(1, 0)] * 16 + [(0, 0)] * 16) * 2] * 2


def _noted(order: list[MessageKind], kind: MessageKind, *_: int) -> None:
    order.append(kind)


@pytest.mark.parametrize(
    ("kinds", "first"),
    [
        pytest.param((MessageKind.GRADIENT, MessageKind.ACTIVATION), MessageKind.GRADIENT, id="scattered"),
        pytest.param((MessageKind.ACTIVATION, MessageKind.GRADIENT), MessageKind.GRADIENT, id="whatever is made first"),
    ],
)
def test_between_cell_mates_gradients_are_handed_over_before_activations(
    kinds: tuple[MessageKind, MessageKind], first: MessageKind
) -> None:
    events = EventQueue()
    near = {pair: Recording(events) for pair in permutations(range(2), 2)}
    order: list[MessageKind] = []
    for kind in kinds:
        across = [Recording(events) for _ in range(2)]
        far = {pair: Recording(events) for pair in permutations(range(2), 2)}
        transfers = relayed(events, kind, across, (near, far))
        transfers.offer(0, 0, 0, partial(_noted, order, kind))
    run_all(events)
    assert order[0] is first


def test_ranks_on_one_host_hand_over_at_once() -> None:
    events, there_ns = EventQueue(), []
    near, far = (
        {pair: WithinHost(Line(None, 0, headers=False), events) for pair in permutations(range(2), 2)} for _ in range(2)
    )
    across = [Recording(events) for _ in range(2)]
    transfers = relayed(events, MessageKind.ACTIVATION, across, (near, far))
    events.at(0, lambda now_ns, _: transfers.offer(now_ns, 0, 0, lambda *times: there_ns.append(times)), None)
    run_all(events)
    last_ns = 16 * CHUNK_NS
    # When the first and the last byte leave, and when they are there.
    assert there_ns == [(0, last_ns, LATENCY_NS, last_ns + LATENCY_NS)]
    assert [each.carried for each in across] == [[(0, 0)] * 16] * 2


def test_what_a_rank_has_of_its_own_goes_before_what_others_on_its_host_hand_over_at_the_same_time() -> None:
    events = EventQueue()
    near, far = (
        {pair: WithinHost(Line(None, 0, headers=False), events) for pair in permutations(range(2), 2)} for _ in range(2)
    )
    across = [Recording(events) for _ in range(2)]
    transfers = relayed(events, MessageKind.ACTIVATION, across, (near, far))
    for mate in range(2):
        events.at(0, lambda now_ns, mate: transfers.offer(now_ns, mate, 0, lambda *_: None), mate)
    run_all(events)
    assert [[owner for owner, _ in each.carried] for each in across] == [[0] * 16 + [1] * 16, [1] * 16 + [0] * 16]
