"""Simulate the transfers of activations and gradients over stage boundaries, alone or shared by a DP-cell."""

from collections.abc import Callable, Sequence

from wanbed.flow.channel import Channel, Known, PrivateChannel, Transfer
from wanbed.flow.event_queue import Event, EventQueue
from wanbed.flow.line import Line
from wanbed.flow.striping import Striping
from wanbed.workloads.transport.frame import HEADER_BYTES

Arrived = Callable[[int, int, int, int], None]
"""Called once all times of a transfer are known, which may be in the future.

The arguments are the times at which the first byte leaves, the last byte leaves, the first byte arrives, and the last
byte arrives.
"""

Released = Callable[[int], None]
"""Called once it is known when the last byte of a transfer has left its own sender, with that time."""


class Delivery(Event):
    """Something that goes over a boundary, which may be an event too: its arrival. A subclass says what follows.

    ``is_awaited`` is whether ``released`` is to be called.
    """

    __slots__ = ("is_awaited",)

    def __init__(self, *, is_awaited: bool = False) -> None:
        self.turn = 0
        self.following = None
        self.is_awaited = is_awaited

    def known(self, first_left_ns: int, last_left_ns: int, first_arrival_ns: int, last_arrival_ns: int) -> None:
        """Handle that all its times are known. They may be in the future."""

    def released(self, left_ns: int) -> None:
        """Handle that it is known when the last byte has left its own sender. Called once, if it ``is_awaited``."""


class _ToldDelivery(Delivery):
    """A delivery that calls functions."""

    __slots__ = ("_arrived", "_released")

    def __init__(self, arrived: Arrived, released: Released | None) -> None:
        super().__init__(is_awaited=released is not None)
        self._arrived = arrived
        self._released = released

    def known(self, first_left_ns: int, last_left_ns: int, first_arrival_ns: int, last_arrival_ns: int) -> None:
        """Call the function."""
        self._arrived(first_left_ns, last_left_ns, first_arrival_ns, last_arrival_ns)

    def released(self, left_ns: int) -> None:
        """Call the function."""
        if self._released is not None:
            self._released(left_ns)


class Transfers:
    """One direction of a boundary, of one pipeline or of all pipelines of a DP-cell."""

    def send(self, now_ns: int, mate: int, microbatch: int, delivery: Delivery) -> None:
        """Queue what pipeline number ``mate`` of the DP-cell has produced."""
        raise NotImplementedError

    def offer(
        self, now_ns: int, mate: int, microbatch: int, arrived: Arrived, released: Released | None = None
    ) -> None:
        """Queue what a pipeline has produced. Call ``arrived`` and ``released`` once the times are known."""
        self.send(now_ns, mate, microbatch, _ToldDelivery(arrived, released))

    def request(self, now_ns: int, mate: int, known: Known) -> None:
        """Ask, from the sending end, for a message of the other direction, of pipeline ``mate`` of the DP-cell.

        Call ``known`` with the time at which the other end knows.
        """
        raise NotImplementedError


class _Own(Transfer):
    """A transfer of one pipeline over its own channel."""

    __slots__ = ("_channel", "_delivery")

    def __init__(self, channel: Channel, available_ns: int, size_bytes: int, striping: Striping | None) -> None:
        self.available_ns = available_ns
        self.size_bytes = size_bytes
        self.striping = striping
        self.at_once = True
        self.is_watched = False
        self.following = None
        self._channel = channel
        self._delivery: Delivery | None = None

    def carry(self, delivery: Delivery) -> None:
        """Carry it over the channel."""
        self._delivery = delivery
        self.is_watched = delivery.is_awaited and self._channel.releases_when_accepted
        self._channel.send(self)

    def left(self, first_ns: int, last_ns: int) -> None:
        """Report all times."""
        channel, delivery = self._channel, self._delivery
        assert delivery is not None
        delivery.known(first_ns, last_ns, channel.arrival_ns(first_ns), channel.arrival_ns(last_ns))
        if delivery.is_awaited and not self.is_watched:
            delivery.released(last_ns)

    def accepted(self, at_ns: int) -> None:
        """Release the sender."""
        assert self._delivery is not None
        self._delivery.released(at_ns)


class OwnTransfers(Transfers):
    """One direction of a boundary of one pipeline, over its own channel. Transfers keep the order of ``send``."""

    __slots__ = ("_channel", "_private", "_size_bytes", "_striping")

    def __init__(self, channel: Channel, size_bytes: int, striping: Striping | None = None) -> None:
        self._channel = channel
        self._private = channel if isinstance(channel, PrivateChannel) else None
        self._size_bytes = size_bytes
        self._striping = striping

    def send(self, now_ns: int, mate: int, microbatch: int, delivery: Delivery) -> None:
        """Queue a transfer."""
        private = self._private
        if private is None:
            _Own(self._channel, now_ns, self._size_bytes, self._striping).carry(delivery)
            return
        first_ns, last_ns = private.transmit(now_ns, self._size_bytes, self._striping)
        latency_ns = private.line.latency_ns
        delivery.known(first_ns, last_ns, first_ns + latency_ns, last_ns + latency_ns)
        if delivery.is_awaited:
            delivery.released(last_ns)

    def request(self, now_ns: int, mate: int, known: Known) -> None:
        """Send the request for a message of the other direction. Call ``known`` with the time at which it arrives."""
        self._channel.request(now_ns, HEADER_BYTES, known)


class _Sharing:
    """A transfer of a DP-cell under way, and the times known so far. ``missing`` counts the parts without times yet."""

    __slots__ = (
        "delivery",
        "first_arrival_ns",
        "first_left_ns",
        "last_arrival_ns",
        "last_left_ns",
        "missing",
        "own_left_ns",
        "time_ns",
    )

    def __init__(self, time_ns: int, delivery: Delivery, missing: int) -> None:
        self.time_ns = time_ns
        self.delivery = delivery
        self.missing = missing
        self.first_left_ns = self.first_arrival_ns = self.own_left_ns = -1
        self.last_left_ns = self.last_arrival_ns = 0


class _Part(Transfer):
    """The part of a transfer that goes over the channel of one cell mate.

    All of it has left by ``whole_ns`` at the earliest, and arrives ``gather_ns`` later than over the channel alone. The
    sender of its ``is_own`` part is released once that has left and all other parts have, by ``scattered_ns``.
    """

    __slots__ = ("_channel", "_gather_ns", "_is_own", "_scattered_ns", "_sharing", "_transfers", "_whole_ns")

    def __init__(
        self,
        transfers: "SharedTransfers",
        channel: Channel,
        sharing: _Sharing,
        *,
        available_ns: int,
        size_bytes: int,
        striping: Striping | None,
        is_own: bool,
        scattered_ns: int,
        whole_ns: int,
        gather_ns: int,
    ) -> None:
        self.available_ns = available_ns
        self.size_bytes = size_bytes
        self.striping = striping
        self.at_once = True
        self.following = None
        self._transfers = transfers
        self._channel = channel
        self._sharing = sharing
        self._is_own = is_own
        self._scattered_ns = scattered_ns
        self._whole_ns = whole_ns
        self._gather_ns = gather_ns
        self.is_watched = is_own and sharing.delivery.is_awaited and channel.releases_when_accepted

    def carry(self) -> None:
        """Carry it over the channel."""
        self._channel.send(self)

    def left(self, first_ns: int, last_ns: int) -> None:
        """Note its times, and report those of the whole transfer with the last part."""
        sharing = self._sharing
        if self._is_own and sharing.delivery.is_awaited and not self.is_watched:
            self.accepted(last_ns)
        end_ns = max(last_ns, self._whole_ns)
        first_arrival_ns = self._channel.arrival_ns(first_ns) + self._gather_ns
        last_arrival_ns = self._channel.arrival_ns(end_ns) + self._gather_ns
        if sharing.first_left_ns < 0 or first_ns < sharing.first_left_ns:
            sharing.first_left_ns = first_ns
        if sharing.first_arrival_ns < 0 or first_arrival_ns < sharing.first_arrival_ns:
            sharing.first_arrival_ns = first_arrival_ns
        sharing.last_left_ns = max(sharing.last_left_ns, end_ns)
        sharing.last_arrival_ns = max(sharing.last_arrival_ns, last_arrival_ns)
        sharing.missing -= 1
        if not sharing.missing:
            self._transfers.deliver(sharing)

    def accepted(self, at_ns: int) -> None:
        """Release the sender."""
        sharing = self._sharing
        sharing.own_left_ns = max(at_ns, self._scattered_ns)
        sharing.delivery.released(sharing.own_left_ns)


class _PartThere(Event):
    """The arrival of the first chunk of a part at the cell mate that sends it on."""

    __slots__ = ("part",)

    def __init__(self, part: _Part) -> None:
        self.turn = 0
        self.following = None
        self.part = part

    def happen(self, now_ns: int) -> None:
        """Queue the part."""
        self.part.carry()


class SharedTransfers(Transfers):
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

    def __init__(
        self,
        events: EventQueue,
        channels: Sequence[Channel],
        size_bytes: int,
        chunk_bytes: int,
        *,
        scatter: Line,
        gather: Line,
        turns: Sequence[tuple[int, int]] = (),
        stripings: Sequence[Striping | None] | None = None,
    ) -> None:
        self.events = events
        self.channels = list(channels)
        self.turns = turns
        self._count = count = len(self.channels)
        self._stripings = [None] * count if stripings is None else list(stripings)
        self._parts_bytes = [size_bytes * (mate + 1) // count - size_bytes * mate // count for mate in range(count)]
        self._waiting: dict[tuple[int, int], _Sharing] = {}
        self._position = 0
        self._largest_bytes = largest_bytes = -(-size_bytes // count)
        self._chunk_bytes = min(chunk_bytes, largest_bytes)
        # Until all of the largest part has been scattered, and until its first chunk has.
        self._scatter_ns = scatter.latency_ns + scatter.duration_ns(largest_bytes)
        self._scatter_first_ns = scatter.latency_ns + scatter.duration_ns(self._chunk_bytes)
        self._gather_chunk_ns = gather.latency_ns + gather.duration_ns(chunk_bytes)
        # Until all parts have been gathered, over the receiver's port.
        self._gather_ns = gather.duration_ns(size_bytes * (count - 1) // count)

    def send(self, now_ns: int, mate: int, microbatch: int, delivery: Delivery) -> None:
        """Send a transfer of pipeline number ``mate`` of the DP-cell: at once, or with ``turns`` in its turn.

        It has left its sender when the sender's own part and the parts for its cell mates have.
        """
        sharing = _Sharing(now_ns, delivery, self._count)
        if not self.turns:
            self._send(mate, sharing)
            return
        self._waiting[mate, microbatch] = sharing
        while (turn := self.turns[self._position]) in self._waiting:
            self._position = (self._position + 1) % len(self.turns)
            self._send(turn[0], self._waiting.pop(turn))

    def request(self, now_ns: int, mate: int, known: Known) -> None:
        """Do as ``OwnTransfers.request`` over the channel of that mate, which its receiver is at the end of."""
        self.channels[mate].request(now_ns, HEADER_BYTES, known)

    def _send(self, owner: int, sharing: _Sharing) -> None:
        time_ns = sharing.time_ns
        scattered_ns = time_ns + self._scatter_ns
        first_ns = time_ns + self._scatter_first_ns
        for mate in range(self._count):
            channel, is_own = self.channels[mate], mate == owner
            part = _Part(
                self,
                channel,
                sharing,
                available_ns=time_ns if is_own else first_ns,
                size_bytes=self._parts_bytes[mate],
                striping=self._stripings[mate],
                is_own=is_own,
                scattered_ns=scattered_ns,
                whole_ns=0 if is_own else scattered_ns + channel.line.duration_ns(self._chunk_bytes),
                gather_ns=0 if is_own else self._gather_chunk_ns,
            )
            if self.turns or part.available_ns <= time_ns:
                channel.send(part)
            else:
                self.events.add(part.available_ns, _PartThere(part))

    def deliver(self, sharing: _Sharing) -> None:
        """Report the times of a transfer of which no part is missing."""
        last_arrival_ns = max(sharing.last_arrival_ns, sharing.first_arrival_ns + self._gather_ns)
        left_ns = sharing.own_left_ns if sharing.delivery.is_awaited else sharing.last_left_ns
        sharing.delivery.known(sharing.first_left_ns, left_ns, sharing.first_arrival_ns, last_arrival_ns)
