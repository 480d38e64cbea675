"""Simulate the star over which the replicas of one stage sum, with or without a quorum.

The rules are those of ``wanbed.workloads.transport.star``: every replica sends its part to the one that gathers, which
sends the sum to all others as soon as it is complete. Adding takes no time. A replica gives no part before its network
has taken the one before, and goes on when the whole sum has arrived: at once where it is late. With parts of A bytes,
all ready at once, on lines of their own of rate R and latency l that takes ``2 (A / R + l)``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from wanbed.runner.simulator.event_queue import EventQueue, Handler
from wanbed.runner.simulator.rings.ring_all_reduce import Done
from wanbed.runner.tcp.channel import Channel
from wanbed.testbed.network.flow_model.striping import Striping
from wanbed.workloads.transport.frames.cutting import Cutting
from wanbed.workloads.transport.frames.frame import HEADER_BYTES
from wanbed.workloads.transport.star.quorum_rounds import QuorumRounds, StarPart, StarSum


@dataclass(frozen=True)
class PartCut:
    """The shape of a fragment's part on its way: its bytes with the headers of its frames, in so many chunks."""

    framed_bytes: int
    chunks: int
    largest_bytes: int

    @staticmethod
    def of(size_bytes: int, connections: int, *, headers: bool) -> "PartCut":
        """Cut as ``wanbed.workloads.transport.star`` does; ``connections`` is the most between two of the ranks."""
        cutting = Cutting(size_bytes, 1, connections)
        framed_bytes = size_bytes + cutting.chunks * HEADER_BYTES if headers else size_bytes
        return PartCut(framed_bytes, cutting.chunks, cutting.largest_bytes)

    def striping(self, connections: int) -> Striping | None:
        """Return the striping over so many connections, None for a single one."""
        return Striping(connections, self.chunks, self.largest_bytes) if connections > 1 else None


class Star:
    """The replicas of one stage; position 0 gathers.

    ``inwards[i]`` leads from position i + 1 to it and ``outwards[i]`` back, over ``connections[i]`` TCP connections.
    ``cuts`` are those of each fragment. There are ``sums`` sums; each waits for ``quorum`` replicas, for all if None.
    """

    def __init__(
        self,
        inwards: Sequence[Channel],
        outwards: Sequence[Channel],
        connections: Sequence[int],
        events: EventQueue,
        *,
        cuts: Sequence[PartCut],
        sums: int,
        quorum: int | None,
    ) -> None:
        replicas = len(inwards) + 1
        self._inwards = inwards
        self._outwards = outwards
        self._connections = connections
        self._events = events
        self._cuts = cuts
        self._rounds = QuorumRounds(range(replicas), quorum or replicas, sums, len(cuts))
        self._there: list[set[int]] = [set() for _ in range(replicas)]
        self._waiting: list[tuple[int, int, Done] | None] = [None] * replicas
        self._given = [-1] * replicas
        self._leaving: set[int] = set()
        self._lives = [0] * replicas
        self._lost: set[int] = set()
        self.gathered: list[tuple[int, StarSum]] = []
        """Each sum, with the time at which it was complete."""

    @property
    def dropped(self) -> int:
        """The number of parts that came after the last sum of their fragment."""
        return len(self._rounds.dropped)

    def kill(self, position: int) -> None:
        """Handle that a replica has ended: what it gave before still leaves, and nothing reaches it."""
        self._lives[position] += 1
        self._waiting[position] = None
        self._given[position] = -1
        self._there[position].clear()
        self._leaving.discard(position)

    def lose(self, position: int, now_ns: int) -> None:
        """Handle that the replica that gathers has noticed the end of another."""
        self._lost.add(position)
        if (done := self._rounds.lose(position)) is not None:
            self._complete(now_ns, done)

    def admit(self, position: int, sums: int, cut: PartCut, now_ns: int, begin: Handler) -> None:
        """Send a replica that comes back what it begins with after ``sums`` sums, and those that are complete since.

        ``begin`` is called when it has the former, with the time and the position.
        """
        self._lost.discard(position)
        self._rounds.rejoin(position)
        channel, events = self._outwards[position - 1], self._events

        def left(_: int, end_ns: int) -> None:
            arrival_ns = max(channel.arrival_ns(max(end_ns, events.now_ns)), events.now_ns)
            events.at(arrival_ns, begin, position)

        channel.queue(now_ns, cut.framed_bytes, left, cut.striping(self._connections[position - 1]))
        for _, done in self.gathered:
            if done.number >= sums:
                self._send(channel, position, done.number, now_ns)

    def latency_ns(self, position: int) -> int:
        """Return the latency from a replica to the one that gathers."""
        return self._inwards[position - 1].arrival_ns(self._events.now_ns) - self._events.now_ns

    @property
    def connections(self) -> int:
        """The most connections between two of the ranks."""
        return max(self._connections)

    def join(self, number: int, position: int, now_ns: int, done: Done) -> None:
        """Handle that a replica gives its part of sum ``number``. Call ``done`` when it has the sum."""
        self._waiting[position] = number, now_ns, done
        if position not in self._leaving:
            self._give(now_ns, position, number)

    def _give(self, now_ns: int, position: int, number: int) -> None:
        self._given[position] = number
        if position == 0:
            self._arrived(now_ns, (StarPart(0, number), 0))
        else:
            self._leaving.add(position)
            self._send(self._inwards[position - 1], position, number, now_ns)
        self._go_on(position, now_ns)

    def _send(self, channel: Channel, position: int, number: int, now_ns: int) -> None:
        """Send the part of the replica at ``position`` to the one that gathers, or the sum back over ``outwards``."""
        cut, events = self._cuts[number % len(self._cuts)], self._events
        gives, life = channel is self._inwards[position - 1], self._lives[position]

        def left(_: int, end_ns: int) -> None:
            arrival_ns = max(channel.arrival_ns(max(end_ns, events.now_ns)), events.now_ns)
            if gives:
                events.at(arrival_ns, self._arrived, (StarPart(position, number), life))
            else:
                events.at(arrival_ns, self._has, (position, number, life))

        def accepted(at_ns: int) -> None:
            events.at(max(at_ns, events.now_ns), self._taken, (position, life))

        striping = cut.striping(self._connections[position - 1])
        channel.queue(now_ns, cut.framed_bytes, left, striping, accepted=accepted if gives else None)

    def _taken(self, now_ns: int, what: tuple[int, int]) -> None:
        """Handle that the network has taken all of a replica's part."""
        position, life = what
        if life != self._lives[position]:
            return
        self._leaving.discard(position)
        waiting = self._waiting[position]
        if waiting is not None and self._given[position] < waiting[0]:
            self._give(now_ns, position, waiting[0])

    def _arrived(self, now_ns: int, what: tuple[StarPart, int]) -> None:
        part, life = what
        if part.replica in self._lost or life != self._lives[part.replica]:
            # Its sender has ended before all of it had left.
            return
        if (done := self._rounds.give(part)) is not None:
            self._complete(now_ns, done)

    def _complete(self, now_ns: int, done: StarSum) -> None:
        self.gathered.append((now_ns, done))
        self._has(now_ns, (0, done.number, self._lives[0]))
        for position, channel in enumerate(self._outwards, start=1):
            if position not in self._lost:
                self._send(channel, position, done.number, now_ns)

    def _has(self, now_ns: int, what: tuple[int, int, int]) -> None:
        position, number, life = what
        if life != self._lives[position]:
            return
        self._there[position].add(number)
        self._go_on(position, now_ns)

    def _go_on(self, position: int, now_ns: int) -> None:
        """Let a replica go on that has given its part and has the sum."""
        waiting = self._waiting[position]
        if waiting is None or waiting[0] not in self._there[position] or self._given[position] < waiting[0]:
            return
        number, ready_ns, done = waiting
        self._waiting[position] = None
        self._there[position].remove(number)
        done(ready_ns, now_ns)
