"""Simulate the transfers that a DP-cell shares chunk by chunk, over all three legs of each chunk.

The chunks, their queues and the credits are those of ``wanbed.workloads.transport.boundary``.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from wanbed.flow.channel import Known
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.line import Line
from wanbed.runner.simulator.channels.packet_channel import ChunkArrived
from wanbed.runner.simulator.channels.transfers import Delivery, Transfers
from wanbed.workloads.message import MessageKind
from wanbed.workloads.transport.boundary import FRAME_KINDS, relay_window
from wanbed.workloads.transport.chunk_queues import ChunkQueue, QueuedChunk, RelayQueue, TurnQueue
from wanbed.workloads.transport.frame import HEADER_BYTES, Cutting, FrameHeader

_Pair = tuple[int, int]
"""The numbers of two cell mates: who sends, and who receives."""

_NOTHING = memoryview(b"")

_GATHER_PRECEDENCE = {MessageKind.ACTIVATION: 0, MessageKind.GRADIENT: 2}
_SCATTER_PRECEDENCE = {MessageKind.GRADIENT: 1, MessageKind.ACTIVATION: 3}
"""A link between cell mates sends what comes from the stage before first, and of both boundaries what is gathered."""


class Leg(Protocol):
    """The connections from one rank to another, which send the chunks of queues."""

    line: Line

    def serve(self, queue: ChunkQueue, precedence: int, arrived: ChunkArrived) -> None:
        """Send the chunks of ``queue``, and call ``arrived`` for each that is there."""

    def touch(self, now_ns: int) -> None:
        """Handle that chunks of a queue may have become ready."""

    def request(self, now_ns: int, size_bytes: int, known: Known) -> None:
        """Send a frame of that size, without a chunk. Call ``known`` when it is there."""


class WithinHost:
    """The way between two ranks on one host, which takes no time.

    What happens at the same time as chunks are handed over goes before them: loopback takes some microseconds.
    """

    def __init__(self, line: Line, events: EventQueue) -> None:
        self.line, self._events = line, events
        self._served: list[tuple[ChunkQueue, ChunkArrived]] = []
        self._hands_over = False

    def serve(self, queue: ChunkQueue, _: int, arrived: ChunkArrived) -> None:
        """Do as ``Leg.serve`` says."""
        self._served.append((queue, arrived))

    def touch(self, now_ns: int) -> None:
        """Hand over all chunks that are ready by then, once all else that is due has happened."""
        if not self._hands_over:
            self._hands_over = True
            self._events.at(now_ns, self._hand_over, None)

    def _hand_over(self, now_ns: int, _: None) -> None:
        while (served := self._first_ready()) is not None:
            queue, arrived = served
            chunk = queue.head
            chunk.source.begun()
            queue.pop()
            chunk.source.accepted()
            arrived(now_ns, now_ns, chunk)
        self._hands_over = False

    def request(self, now_ns: int, size_bytes: int, known: Known) -> None:
        """Do as ``Leg.request`` says."""
        known(now_ns)

    def _first_ready(self) -> tuple[ChunkQueue, ChunkArrived] | None:
        return next((served for served in self._served if served[0].ready), None)


class _Message:
    """A transfer under way. It is the ``Source`` of its own chunks."""

    def __init__(self, events: EventQueue, chunks: int, delivery: Delivery) -> None:
        self._events, self._delivery = events, delivery
        self._unaccepted = self._missing = chunks
        self._first_left_ns = self._first_arrival_ns = self._accepted_ns = -1
        self._last_left_ns = 0

    def begun(self) -> None:
        """Handle that the kernel is about to be offered a chunk."""
        if self._first_left_ns < 0:
            self._first_left_ns = self._events.now_ns

    def accepted(self) -> None:
        """Count a chunk that its sender's kernel has accepted."""
        self._unaccepted -= 1
        if not self._unaccepted:
            self._accepted_ns = self._events.now_ns
            if self._delivery.is_awaited:
                self._delivery.released(self._accepted_ns)

    def crossed(self, left_ns: int) -> None:
        """Handle that a chunk is across the boundary, which has left at that time."""
        self._last_left_ns = max(self._last_left_ns, left_ns)

    def delivered(self, first_ns: int, now_ns: int) -> None:
        """Handle that its receiver has a chunk, whose first byte came at ``first_ns``."""
        first_ns = min(first_ns, now_ns)
        self._first_arrival_ns = first_ns if self._first_arrival_ns < 0 else min(self._first_arrival_ns, first_ns)
        self._missing -= 1
        if not self._missing:
            left_ns = self._accepted_ns if self._delivery.is_awaited else self._last_left_ns
            self._delivery.known(self._first_left_ns, left_ns, self._first_arrival_ns, now_ns)


class _Nobody:
    """The ``Source`` of a chunk that nobody waits for."""

    def begun(self) -> None:
        pass

    def accepted(self) -> None:
        pass


class _Relayed:
    """The ``Source`` of a chunk that a cell mate sends over the boundary: its owner gets credit for it."""

    def __init__(self, relay: "_Relay", owner: int) -> None:
        self._relay, self._owner = relay, owner

    def begun(self) -> None:
        pass

    def accepted(self) -> None:
        self._relay.sent(self._owner)


class _Relay:
    """The chunks that one cell mate relays for others, and the credit that it gives them, a quarter at a time."""

    def __init__(self, events: EventQueue, mate: int, window: int, back: Mapping[_Pair, Leg]) -> None:
        self._events, self._mate, self._back = events, mate, back
        self.window, self._batch = window, window // 4
        self._uncredited: Counter[int] = Counter()
        self.scattered: dict[int, tuple[RelayQueue, Leg]] = {}
        """For each owner the queue of what it hands over, and the way."""

    def sent(self, owner: int) -> None:
        """Handle that the kernel has accepted a chunk of ``owner`` for the way across."""
        self._uncredited[owner] += 1
        if self._uncredited[owner] == self._batch:
            self._uncredited[owner] = 0
            self._back[self._mate, owner].request(
                self._events.now_ns, HEADER_BYTES, lambda at_ns: self._know(at_ns, owner)
            )

    def _know(self, at_ns: int, owner: int) -> None:
        self._events.at(max(at_ns, self._events.now_ns), self._grant, owner)

    def _grant(self, now_ns: int, owner: int) -> None:
        queue, leg = self.scattered[owner]
        queue.grant(self._batch)
        leg.touch(now_ns)


class RelayedTransfers(Transfers):
    """One direction of a boundary of a DP-cell under temporal sharing, packet by packet.

    With q the remainder of i by the number of pipelines, chunk i goes from its owner to cell mate q, over q's channel
    ``across``, and to the owner's other end. A cell mate has credit for a window of chunks at a relay, which hands them
    on in the order in which they come, its own among them, or with ``turns`` in their turn. ``near`` and ``far`` are
    the ways between cell mates on either side. ``connections`` are those of each channel across.

    A relay reads whatever comes from across, also while 32 chunks and more wait for the cell mates.
    """

    def __init__(
        self,
        events: EventQueue,
        kind: MessageKind,
        cutting: Cutting,
        across: Sequence[Leg],
        *,
        near: Mapping[_Pair, Leg],
        far: Mapping[_Pair, Leg],
        connections: Sequence[int],
        turns: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._events, self._kind, self._cutting = events, FRAME_KINDS[kind], cutting
        self._across, self._near, self._far = across, near, far
        self._messages: dict[tuple[int, int, int], _Message] = {}
        self._offers: Counter[tuple[int, int]] = Counter()
        mates = range(len(across))
        self._own_turns = [[microbatch for owner, microbatch in turns if owner == mate] for mate in mates]
        self._offered = [0 for _ in mates]
        self._early: dict[_Pair, list[_Message]] = {}
        self._queues: list[ChunkQueue] = []
        self._relays: list[_Relay] = []
        self._gathered: dict[_Pair, ChunkQueue] = {}
        for mate, channel in enumerate(across):
            queue = TurnQueue(turns, len(cutting.chunks_of(mate))) if turns else ChunkQueue()
            self._queues.append(queue)
            channel.serve(queue, 0, self._crossed)
            relay = _Relay(events, mate, relay_window(connections[mate]), near)
            self._relays.append(relay)
            for owner in mates:
                if owner != mate:
                    relay.scattered[owner] = scattered, leg = RelayQueue(), near[owner, mate]
                    scattered.grant(relay.window)
                    leg.serve(scattered, _SCATTER_PRECEDENCE[kind], self._scattered)
                    gathered = self._gathered[mate, owner] = ChunkQueue()
                    far[mate, owner].serve(gathered, _GATHER_PRECEDENCE[kind], self._gathered_at_owner)

    def send(self, now_ns: int, mate: int, microbatch: int, delivery: Delivery) -> None:
        """Send a transfer of pipeline number ``mate`` of the DP-cell: at once, or with ``turns`` in its turn."""
        message = _Message(self._events, self._cutting.chunks, delivery)
        own_turns = self._own_turns[mate]
        if not own_turns:
            self._stripe(mate, microbatch, message)
            return
        self._early.setdefault((mate, microbatch), []).append(message)
        while waiting := self._early.get((mate, own_turns[self._offered[mate] % len(own_turns)])):
            self._stripe(mate, own_turns[self._offered[mate] % len(own_turns)], waiting.pop(0))
            self._offered[mate] += 1

    def request(self, now_ns: int, mate: int, known: Known) -> None:
        """Do as ``OwnTransfers.request`` over the channel of that mate, which its receiver is at the end of."""
        self._across[mate].request(now_ns, HEADER_BYTES, known)

    def _stripe(self, owner: int, microbatch: int, message: _Message) -> None:
        cutting = self._cutting
        iteration = self._offers[owner, microbatch]
        self._offers[owner, microbatch] += 1
        self._messages[owner, iteration, microbatch] = message
        for mate, relay in enumerate(self._relays):
            queue, leg = (self._queues[mate], self._across[mate]) if mate == owner else relay.scattered[owner]
            for index in cutting.chunks_of(mate):
                offset, length = cutting.chunk(index)
                header = FrameHeader(self._kind, owner, iteration, microbatch, cutting.total_bytes, offset, length)
                queue.add(QueuedChunk(header, _NOTHING, message))
            leg.touch(self._events.now_ns)

    def _mate_of(self, header: FrameHeader) -> int:
        index = self._cutting.index(header.offset, header.length)
        assert index is not None
        return index % self._cutting.node_pairs

    def _message_of(self, header: FrameHeader) -> _Message:
        return self._messages[header.owner, header.iteration, header.number]

    def _scattered(self, _: int, now_ns: int, chunk: QueuedChunk) -> None:
        mate = self._mate_of(chunk.header)
        source = _Relayed(self._relays[mate], chunk.header.owner)
        self._queues[mate].add(QueuedChunk(chunk.header, _NOTHING, source))
        self._across[mate].touch(now_ns)

    def _crossed(self, begun_ns: int, now_ns: int, chunk: QueuedChunk) -> None:
        header = chunk.header
        mate, owner = self._mate_of(header), header.owner
        line = self._across[mate].line
        self._message_of(header).crossed(now_ns - line.latency_ns)
        if mate == owner:
            self._deliver(begun_ns + line.latency_ns, now_ns, chunk)
            return
        self._gathered[mate, owner].add(QueuedChunk(header, _NOTHING, _Nobody()))
        self._far[mate, owner].touch(now_ns)

    def _gathered_at_owner(self, begun_ns: int, now_ns: int, chunk: QueuedChunk) -> None:
        self._deliver(begun_ns, now_ns, chunk)

    def _deliver(self, first_ns: int, now_ns: int, chunk: QueuedChunk) -> None:
        self._message_of(chunk.header).delivered(first_ns, now_ns)
