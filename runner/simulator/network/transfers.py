"""Simulate activations and gradients over stage boundaries, alone or shared by the pipelines of a DP-cell."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from runner.simulator.event_queue import EventQueue
from runner.tcp.channel import Channel, Left
from runner.tcp.line import Line
from runner.tcp.striping import Striping

Arrived = Callable[[int, int, int, int], None]
"""Called once all is known of a transfer: when its first byte left, its last one had left, and when each was there.

That is (left first, left last, there first, there last); the times may lie ahead.
"""


@dataclass(slots=True)
class _Offer:
    """A transfer on its way, and what is known so far of its shares."""

    time_ns: int
    arrived: Arrived
    missing: int
    first_left_ns: int = -1
    last_left_ns: int = 0
    first_there_ns: int = -1
    last_there_ns: int = 0


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of a transfer that goes over the channel of one mate."""

    mate: int
    size_bytes: int
    left: Left


class OwnTransfers:
    """One direction of a boundary of one pipeline, over its own channel: transfers go in the order they are made."""

    def __init__(self, channel: Channel, size_bytes: int, striping: Striping | None = None) -> None:
        self._channel = channel
        self._size_bytes = size_bytes
        self._striping = striping

    def offer(self, now_ns: int, pipeline: int, microbatch: int, arrived: Arrived) -> None:
        """Queue a transfer that has been made."""
        latency_ns = self._channel.line.latency_ns

        def left(start_ns: int, end_ns: int) -> None:
            arrived(start_ns, end_ns, start_ns + latency_ns, end_ns + latency_ns)

        self._channel.queue(now_ns, self._size_bytes, left, self._striping)


@dataclass
class SharedTransfers:
    """One direction of a boundary of a DP-cell under temporal sharing: the cell's pipelines take turns on all channels.

    ``channels`` has one for each pipeline of the cell. A transfer of pipeline p is cut in as many equal parts; part q
    goes from p to its mate q inside the datacenter (scatter), over q's channel, and on the far side to p (gather). The
    legs overlap: a part may leave q once the first ``chunk_bytes`` of it are there, and is gathered but for the last
    ones when its last byte arrives. Scattering takes ``A / C`` of the port's time of each mate, since a host may send
    to several at full rate, and gathering ``A (C-1)/C`` of the receiver's. ``scatter`` and ``gather`` are the lines
    between mates on either side, without a rate where mates share a host; what else comes to these ports is not slowed.

    With ``turns``, of (pipeline of the cell, microbatch), every channel takes the transfers in that order, and the next
    one only when those before it have left. Without, it takes parts as the first chunk of each is there: what a mate
    has of its own goes before what is still on its way to it. ``dealings`` hold how the chunks of each share go over
    the connections of its node pair.
    """

    events: EventQueue
    channels: Sequence[Channel]
    size_bytes: int
    chunk_bytes: int
    scatter: Line
    gather: Line
    turns: Sequence[tuple[int, int]] = ()
    stripings: Sequence[Striping | None] | None = None
    _waiting: dict[tuple[int, int], _Offer] = field(default_factory=dict)
    _position: int = 0

    def offer(self, now_ns: int, mate: int, microbatch: int, arrived: Arrived) -> None:
        """Send a transfer that the cell's pipeline number ``mate`` has made; with ``turns``, once it is its turn."""
        offer = _Offer(now_ns, arrived, len(self.channels))
        if not self.turns:
            self._send(mate, offer)
            return
        self._waiting[mate, microbatch] = offer
        while (turn := self.turns[self._position]) in self._waiting:
            self._position = (self._position + 1) % len(self.turns)
            self._send(turn[0], self._waiting.pop(turn))

    def _send(self, owner: int, offer: _Offer) -> None:
        count = len(self.channels)
        largest_bytes = -(-self.size_bytes // count)
        chunk_bytes = min(self.chunk_bytes, largest_bytes)
        scattered_ns = offer.time_ns + self.scatter.latency_ns + self.scatter.duration_ns(largest_bytes)
        first_ns = offer.time_ns + self.scatter.latency_ns + self.scatter.duration_ns(chunk_bytes)
        for mate, channel in enumerate(self.channels):
            size_bytes = self.size_bytes * (mate + 1) // count - self.size_bytes * mate // count
            available_ns = offer.time_ns if mate == owner else first_ns
            whole_ns = 0 if mate == owner else scattered_ns + channel.line.duration_ns(chunk_bytes)
            part = _Part(mate, size_bytes, self._leaving(owner, mate, offer, whole_ns))
            if self.turns or available_ns <= offer.time_ns:
                self._queue(available_ns, part)
            else:
                self.events.at(available_ns, self._queue, part)

    def _queue(self, available_ns: int, part: "_Part") -> None:
        striping = None if self.stripings is None else self.stripings[part.mate]
        self.channels[part.mate].queue(available_ns, part.size_bytes, part.left, striping)

    def _leaving(self, owner: int, mate: int, offer: _Offer, whole_ns: int) -> Callable[[int, int], None]:
        line = self.channels[mate].line

        def left(start_ns: int, end_ns: int) -> None:
            end_ns = max(end_ns, whole_ns)
            there_ns, last_ns = start_ns + line.latency_ns, end_ns + line.latency_ns
            if mate != owner:
                chunk_ns = self.gather.latency_ns + self.gather.duration_ns(self.chunk_bytes)
                there_ns, last_ns = there_ns + chunk_ns, last_ns + chunk_ns
            offer.first_left_ns = start_ns if offer.first_left_ns < 0 else min(offer.first_left_ns, start_ns)
            offer.first_there_ns = there_ns if offer.first_there_ns < 0 else min(offer.first_there_ns, there_ns)
            offer.last_left_ns = max(offer.last_left_ns, end_ns)
            offer.last_there_ns = max(offer.last_there_ns, last_ns)
            offer.missing -= 1
            if not offer.missing:
                self._deliver(offer)

        return left

    def _deliver(self, offer: _Offer) -> None:
        count = len(self.channels)
        gathered_ns = self.gather.duration_ns(self.size_bytes * (count - 1) // count)
        offer.last_there_ns = max(offer.last_there_ns, offer.first_there_ns + gathered_ns)
        offer.arrived(offer.first_left_ns, offer.last_left_ns, offer.first_there_ns, offer.last_there_ns)
