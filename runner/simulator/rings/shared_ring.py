"""Simulate a ring all-reduce whose channels share resources with other traffic, event by event.

The rules are those of ``wanbed.runner.simulator.rings.ring_all_reduce``. Here each replica begins when it is ready, and
the duration of a step is known only when it has left.
"""

from collections.abc import Callable, Sequence

from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.network.changing.changing_channel import ChangingChannel
from wanbed.runner.simulator.rings.ring_all_reduce import RingCut
from wanbed.runner.tcp.channel import Channel
from wanbed.testbed.network.flow_model.line import Line

Done = Callable[[int, int], None]
"""Called with the time at which a replica became ready and the time, possibly future, at which it has the result."""


def awaits_room(lines: Sequence[Line], cut: RingCut) -> bool:
    """Return whether a step of a ring over ``lines``, which may repeat around it, ever waits for room."""
    round_ns = sum(line.latency_ns for line in lines) * cut.replicas // len(lines)
    # Otherwise data takes longer around the ring than the report of free room.
    return cut.window_holds_all and max(line.rtt_ns for line in lines) > round_ns


class SharedRing:
    """The replicas of one stage, in the ring's order.

    ``channels[i]`` leads from position i to the next one, over ``connections[i]`` TCP connections. If the ring has more
    replicas than channels are given, the given ones repeat around the ring.
    """

    def __init__(
        self, channels: Sequence[Channel], connections: Sequence[int], cut: RingCut, events: EventQueue
    ) -> None:
        self.channels = channels
        self.cut = cut
        self.stripings = [cut.stripings(count) for count in connections]
        self.events = events
        # Where latencies change, data may take longer around at some time.
        changes = any(isinstance(channel, ChangingChannel) for channel in channels)
        self.awaits_room = cut.window_holds_all if changes else awaits_room([channel.line for channel in channels], cut)
        self.awaited = [cut.awaited(step) for step in range(cut.steps)] if self.awaits_room else []
        self._rounds: dict[int, _Round] = {}

    def join(self, iteration: int, position: int, now_ns: int, done: Done) -> None:
        """Handle that the replica at ``position`` is ready."""
        current = self._rounds.get(iteration)
        if current is None:
            current = self._rounds[iteration] = _Round(self)
        current.join(position, now_ns, done)
        if current.joined == len(self.channels):
            # Pending events still refer to the round.
            del self._rounds[iteration]


class _Round:
    """One all-reduce. For each position it keeps the last step that has begun, is complete, or has arrived.

    A step is complete once it has left and the whole segment that it passes on has arrived.
    """

    def __init__(self, ring: SharedRing) -> None:
        count = len(ring.channels)
        self._ring = ring
        self._count = count
        self.joined = 0
        self._ready_ns = [-1] * count
        self._done: list[Done | None] = [None] * count
        self._begun = [-1] * count
        self._left: list[set[int]] = [set() for _ in range(count)]
        self._complete = [-1] * count
        self._first_arrived = [-1] * count
        self._whole_arrived = [-1] * count
        self._accepted = [False] * count
        self._first_used = [-1] * count
        self._whole_used = [-1] * count

    def join(self, position: int, now_ns: int, done: Done) -> None:
        """Handle that the replica at ``position`` is ready."""
        self.joined += 1
        self._ready_ns[position], self._done[position] = now_ns, done
        self._report(position, now_ns)
        self._advance(position, now_ns)

    def _report(self, position: int, now_ns: int) -> None:
        """Report to the previous replica what this one has used."""
        ring = self._ring
        if ring.awaits_room and self._ready_ns[position] >= 0:
            before = (position - 1) % self._count
            used = before, self._first_arrived[position], self._whole_arrived[position]
            ring.events.at(ring.channels[before].report_ns(now_ns), self._used_reported, used)

    def _used_reported(self, now_ns: int, what: tuple[int, int, int]) -> None:
        position, self._first_used[what[0]], self._whole_used[what[0]] = what
        self._advance(position, now_ns)

    def _has_room(self, position: int, step: int) -> bool:
        if not self._ring.awaits_room:
            return True
        awaited = self._ring.awaited[step]
        if awaited is None:
            return True
        before, whole = awaited
        return (self._whole_used if whole else self._first_used)[position] >= before

    def _advance(self, position: int, now_ns: int) -> None:
        """Begin and complete all steps of a position that are now possible."""
        if self._ready_ns[position] < 0:
            return
        steps = self._ring.cut.steps
        while (
            (step := self._begun[position] + 1) < steps
            and self._first_arrived[position] >= step - 1
            and self._whole_arrived[position] >= step - 2
            and self._has_room(position, step)
        ):
            self._begin(position, step, now_ns)
        while (step := self._complete[position] + 1) in self._left[position] and self._whole_arrived[
            position
        ] >= step - 1:
            self._complete[position] = step
            self._left[position].remove(step)
            arrival_ns = self._ring.channels[position].arrival_ns(now_ns)
            self._ring.events.at(arrival_ns, self._segment_arrived, ((position + 1) % self._count, step))
        done = self._done[position]
        if done is not None and self._accepted[position] and self._whole_arrived[position] == steps - 1:
            self._done[position] = None
            done(self._ready_ns[position], now_ns)

    def _begin(self, position: int, step: int, now_ns: int) -> None:
        self._begun[position] = step
        events, channel = self._ring.events, self._ring.channels[position]
        first_bytes, rest_bytes = self._ring.cut.parts_bytes
        first, rest = self._ring.stripings[position]
        chunk_left_ns = 0

        def chunk_left(_: int, end_ns: int) -> None:
            nonlocal chunk_left_ns
            chunk_left_ns = end_ns
            events.at(
                channel.arrival_ns(max(end_ns, events.now_ns)),
                self._chunk_arrived,
                ((position + 1) % self._count, step),
            )
            if not rest_bytes:
                rest_left(_, end_ns)

        def rest_left(_: int, end_ns: int) -> None:
            events.at(max(chunk_left_ns, end_ns, events.now_ns), self._has_left, (position, step))

        def accepted(at_ns: int) -> None:
            events.at(max(at_ns, events.now_ns), self._has_been_accepted, position)

        last = accepted if step == self._ring.cut.steps - 1 else None
        channel.queue(now_ns, first_bytes, chunk_left, first, accepted=None if rest_bytes else last, at_once=False)
        if rest_bytes:
            channel.queue(now_ns, rest_bytes, rest_left, rest, accepted=last, at_once=False)

    def _chunk_arrived(self, now_ns: int, what: tuple[int, int]) -> None:
        position, step = what
        self._first_arrived[position] = max(self._first_arrived[position], step)
        self._report(position, now_ns)
        self._advance(position, now_ns)

    def _segment_arrived(self, now_ns: int, what: tuple[int, int]) -> None:
        position, self._whole_arrived[what[0]] = what
        self._report(position, now_ns)
        self._advance(position, now_ns)

    def _has_been_accepted(self, now_ns: int, position: int) -> None:
        self._accepted[position] = True
        self._advance(position, now_ns)

    def _has_left(self, now_ns: int, what: tuple[int, int]) -> None:
        position, step = what
        self._left[position].add(step)
        self._advance(position, now_ns)
