"""Simulate the transfers of activations and gradients over stage boundaries, alone or shared by a DP-cell."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from wanbed.runner.simulator.event_queue import Event, EventQueue
from wanbed.runner.tcp.channel import Accepted, Channel, Known, Left
from wanbed.testbed.network.flow_model.line import Line
from wanbed.testbed.network.flow_model.striping import Striping

Arrived = Callable[[int, int, int, int], None]
"""Called once all times of a transfer are known, which may be in the future.

The arguments are the times at which the first byte leaves, the last byte leaves, the first byte arrives, and the last
byte arrives.
"""

Released = Callable[[int], None]
"""Called once it is known when the last byte of a transfer has left its own sender, with that time."""


class _Offer:
    """A transfer under way, and the times known so far. ``missing`` counts the parts whose times are not known yet."""

    __slots__ = (
        "arrived",
        "first_arrival_ns",
        "first_left_ns",
        "last_arrival_ns",
        "last_left_ns",
        "missing",
        "own_left_ns",
        "released",
        "time_ns",
    )

    def __init__(self, time_ns: int, arrived: Arrived, released: Released | None, missing: int) -> None:
        self.time_ns = time_ns
        self.arrived = arrived
        self.released = released
        self.missing = missing
        self.first_left_ns = self.first_arrival_ns = self.own_left_ns = -1
        self.last_left_ns = self.last_arrival_ns = 0


class _Part(Event):
    """The part of a transfer that goes over the channel of one cell mate, from the time of the event on."""

    __slots__ = ("accepted", "left", "mate", "size_bytes", "transfers")

    def __init__(
        self, transfers: "SharedTransfers", mate: int, size_bytes: int, left: Left, accepted: Accepted | None
    ) -> None:
        self.turn = 0
        self.transfers = transfers
        self.mate = mate
        self.size_bytes = size_bytes
        self.left = left
        self.accepted = accepted

    def happen(self, now_ns: int) -> None:
        """Queue the part."""
        self.transfers.queue(now_ns, self)


class OwnTransfers:
    """One direction of a boundary of one pipeline, over its own channel. Transfers keep the order of ``offer``."""

    def __init__(self, channel: Channel, size_bytes: int, striping: Striping | None = None) -> None:
        self._channel = channel
        self._size_bytes = size_bytes
        self._striping = striping

    def offer(
        self, now_ns: int, pipeline: int, microbatch: int, arrived: Arrived, released: Released | None = None
    ) -> None:
        """Queue a transfer."""
        channel = self._channel

        def left(start_ns: int, end_ns: int) -> None:
            arrived(start_ns, end_ns, channel.arrival_ns(start_ns), channel.arrival_ns(end_ns))
            if released is not None and not channel.releases_when_accepted:
                released(end_ns)

        accepted = released if channel.releases_when_accepted else None
        self._channel.queue(now_ns, self._size_bytes, left, self._striping, accepted=accepted)

    def request(self, now_ns: int, mate: int, known: Known) -> None:
        """Send the request for a message of the other direction. Call ``known`` with the time at which it arrives."""
        self._channel.request(now_ns, known)


@dataclass
class SharedTransfers:
    """One direction of a boundary of a DP-cell under temporal sharing: the cell's pipelines take turns on all channels.

    ``channels`` has one for each of the C pipelines of the DP-cell. A transfer of A bytes of pipeline p is cut into C
    equal parts. Part q goes from p to cell mate q inside the datacenter (scatter), over q's channel, and on the far
    side to p (gather). The three legs overlap: a part may leave q once its first ``chunk_bytes`` are there, and when
    its last byte arrives on the far side all but the last chunk has been gathered. Scattering occupies the port of each
    mate for ``A / C`` bytes, because a host may send to several hosts at full rate; gathering occupies the receiver's
    port for ``A (C-1)/C`` bytes. ``scatter`` and ``gather`` are the lines between cell mates on either side, without a
    rate where mates share a host. Other transfers to these ports are not slowed down.

    With ``turns``, a sequence of (pipeline of the DP-cell, microbatch), every channel takes the transfers in that
    order, each one only after the previous ones have left. Without it, a channel takes a part when the part's first
    chunk is there, so a mate's own parts go before parts still on their way to it. On hosts they also go between the
    chunks of a part that came before, as ``RelayedTransfers`` has it, which follows packets. ``stripings`` has the
    striping of each mate's part over the connections of its node pair.
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
    _scatter_ns: int = field(init=False)
    """Until all of the largest part has been scattered, and until its first chunk has."""
    _scatter_first_ns: int = field(init=False)
    _gather_chunk_ns: int = field(init=False)
    _gather_ns: int = field(init=False)
    """Until all parts have been gathered, over the receiver's port."""

    def __post_init__(self) -> None:
        count = len(self.channels)
        largest_bytes = -(-self.size_bytes // count)
        chunk_bytes = min(self.chunk_bytes, largest_bytes)
        self._scatter_ns = self.scatter.latency_ns + self.scatter.duration_ns(largest_bytes)
        self._scatter_first_ns = self.scatter.latency_ns + self.scatter.duration_ns(chunk_bytes)
        self._gather_chunk_ns = self.gather.latency_ns + self.gather.duration_ns(self.chunk_bytes)
        self._gather_ns = self.gather.duration_ns(self.size_bytes * (count - 1) // count)

    def offer(
        self, now_ns: int, mate: int, microbatch: int, arrived: Arrived, released: Released | None = None
    ) -> None:
        """Send a transfer of pipeline number ``mate`` of the DP-cell: at once, or with ``turns`` in its turn.

        It has left its sender when the sender's own part and the parts for its cell mates have.
        """
        offer = _Offer(now_ns, arrived, released, len(self.channels))
        if not self.turns:
            self._send(mate, offer)
            return
        self._waiting[mate, microbatch] = offer
        while (turn := self.turns[self._position]) in self._waiting:
            self._position = (self._position + 1) % len(self.turns)
            self._send(turn[0], self._waiting.pop(turn))

    def request(self, now_ns: int, mate: int, known: Known) -> None:
        """Do as ``OwnTransfers.request`` over the channel of that mate, which its receiver is at the end of."""
        self.channels[mate].request(now_ns, known)

    def _send(self, owner: int, offer: _Offer) -> None:
        count = len(self.channels)
        chunk_bytes = min(self.chunk_bytes, -(-self.size_bytes // count))
        scattered_ns = offer.time_ns + self._scatter_ns
        first_ns = offer.time_ns + self._scatter_first_ns
        for mate, channel in enumerate(self.channels):
            size_bytes = self.size_bytes * (mate + 1) // count - self.size_bytes * mate // count
            available_ns = offer.time_ns if mate == owner else first_ns
            whole_ns = 0 if mate == owner else scattered_ns + channel.line.duration_ns(chunk_bytes)
            left, accepted = self._leaving(owner, mate, offer, whole_ns), None
            if mate == owner and offer.released is not None:
                release = partial(self._release, offer, offer.released, scattered_ns)
                if channel.releases_when_accepted:
                    accepted = release
                else:
                    left = self._releasing(release, left)
            part = _Part(self, mate, size_bytes, left, accepted)
            if self.turns or available_ns <= offer.time_ns:
                self.queue(available_ns, part)
            else:
                self.events.add(available_ns, part)

    def queue(self, available_ns: int, part: _Part) -> None:
        """Queue a part on the channel of its cell mate."""
        striping = None if self.stripings is None else self.stripings[part.mate]
        self.channels[part.mate].queue(available_ns, part.size_bytes, part.left, striping, accepted=part.accepted)

    def _leaving(self, owner: int, mate: int, offer: _Offer, whole_ns: int) -> Callable[[int, int], None]:
        channel = self.channels[mate]

        def left(start_ns: int, end_ns: int) -> None:
            end_ns = max(end_ns, whole_ns)
            first_ns, last_ns = channel.arrival_ns(start_ns), channel.arrival_ns(end_ns)
            if mate != owner:
                chunk_ns = self._gather_chunk_ns
                first_ns, last_ns = first_ns + chunk_ns, last_ns + chunk_ns
            offer.first_left_ns = start_ns if offer.first_left_ns < 0 else min(offer.first_left_ns, start_ns)
            offer.first_arrival_ns = first_ns if offer.first_arrival_ns < 0 else min(offer.first_arrival_ns, first_ns)
            offer.last_left_ns = max(offer.last_left_ns, end_ns)
            offer.last_arrival_ns = max(offer.last_arrival_ns, last_ns)
            offer.missing -= 1
            if not offer.missing:
                self._deliver(offer)

        return left

    @staticmethod
    def _release(offer: _Offer, released: Released, scattered_ns: int, left_ns: int) -> None:
        offer.own_left_ns = max(left_ns, scattered_ns)
        released(offer.own_left_ns)

    @staticmethod
    def _releasing(release: Accepted, then: Left) -> Left:
        def left(start_ns: int, end_ns: int) -> None:
            release(end_ns)
            then(start_ns, end_ns)

        return left

    def _deliver(self, offer: _Offer) -> None:
        offer.last_arrival_ns = max(offer.last_arrival_ns, offer.first_arrival_ns + self._gather_ns)
        left_ns = offer.last_left_ns if offer.released is None else offer.own_left_ns
        offer.arrived(offer.first_left_ns, left_ns, offer.first_arrival_ns, offer.last_arrival_ns)
