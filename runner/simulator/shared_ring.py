"""A ring all-reduce whose channels carry other traffic too: event by event, so that it shares with all of it.

The rules are those of ``runner.simulator.ring_all_reduce``; here each replica begins when it is ready, and what a step
takes is known only when it has left.
"""

from collections.abc import Callable, Sequence

from runner.simulator.channel import Channel
from runner.simulator.event_queue import EventQueue

Done = Callable[[int, int], None]
"""Told when a replica became ready, and when it has the sum, which may lie ahead."""


class SharedRing:
    """The replicas of one stage, in the ring's order; ``channels[i]`` leads from position i to the next one.

    Where ``replicas`` are more than channels are given, those given repeat all around the ring. A segment is sent as
    its first chunk, with which the next replica can begin its next step, and the rest.
    """

    def __init__(
        self, channels: Sequence[Channel], replicas: int, size_bytes: int, chunk_bytes: int, events: EventQueue
    ) -> None:
        self.channels = channels
        self.steps = 2 * (replicas - 1)
        self.events = events
        segment_bytes = -(-size_bytes // replicas)
        first_bytes = min(chunk_bytes, segment_bytes)
        self.parts_bytes = (first_bytes, segment_bytes - first_bytes)
        self._rounds: dict[int, _Round] = {}

    def join(self, iteration: int, position: int, now_ns: int, done: Done) -> None:
        """The replica at that position is ready."""
        current = self._rounds.setdefault(iteration, _Round(self))
        current.join(position, now_ns, done)
        if current.joined == len(self.channels):
            # Whoever is still under way keeps it alive by the events to come.
            del self._rounds[iteration]


class _Round:
    """One all-reduce. A position's step is sent, and complete once the segment before has come whole as well."""

    def __init__(self, ring: SharedRing) -> None:
        count = len(ring.channels)
        self._ring = ring
        self._count = count
        self.joined = 0
        self._ready_ns = [-1] * count
        self._done: list[Done | None] = [None] * count
        self._begun = [-1] * count
        self._sent = [-1] * count
        self._complete = [-1] * count
        self._first_come = [-1] * count
        self._whole_come = [-1] * count

    def join(self, position: int, now_ns: int, done: Done) -> None:
        self.joined += 1
        self._ready_ns[position], self._done[position] = now_ns, done
        self._advance(position, now_ns)

    def _advance(self, position: int, now_ns: int) -> None:
        """Complete the step of a position, and begin the next one, as far as its events allow."""
        if self._ready_ns[position] < 0:
            return
        steps = self._ring.steps
        step = self._complete[position] + 1
        if step < steps and self._sent[position] >= step and self._whole_come[position] >= step - 1:
            self._complete[position] = step
            latency_ns = self._ring.channels[position].line.latency_ns
            self._ring.events.at(now_ns + latency_ns, self._whole, ((position + 1) % self._count, step))
            step += 1
        if step == steps:
            done = self._done[position]
            if done is not None and self._whole_come[position] == steps - 1:
                self._done[position] = None
                done(self._ready_ns[position], now_ns)
        elif self._begun[position] < step and self._first_come[position] >= step - 1:
            self._begin(position, step, now_ns)

    def _begin(self, position: int, step: int, now_ns: int) -> None:
        self._begun[position] = step
        events, channel = self._ring.events, self._ring.channels[position]
        first_bytes, rest_bytes = self._ring.parts_bytes
        latency_ns = channel.line.latency_ns

        def first_left(_: int, end_ns: int) -> None:
            events.at(max(end_ns, events.now_ns) + latency_ns, self._first, ((position + 1) % self._count, step))
            if not rest_bytes:
                left(_, end_ns)

        def left(_: int, end_ns: int) -> None:
            events.at(max(end_ns, events.now_ns), self._has_sent, (position, step))

        channel.queue(now_ns, first_bytes, first_left)
        if rest_bytes:
            channel.queue(now_ns, rest_bytes, left)

    def _first(self, now_ns: int, what: tuple[int, int]) -> None:
        position, self._first_come[what[0]] = what
        self._advance(position, now_ns)

    def _whole(self, now_ns: int, what: tuple[int, int]) -> None:
        position, self._whole_come[what[0]] = what
        self._advance(position, now_ns)

    def _has_sent(self, now_ns: int, what: tuple[int, int]) -> None:
        position, self._sent[what[0]] = what
        self._advance(position, now_ns)
