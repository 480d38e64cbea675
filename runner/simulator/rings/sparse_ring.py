"""Simulate a ring all-reduce, or half of one, of fewer elements than replicas. Empty segments are not sent.

As ``wanbed.workloads.transport.ring.ring_round`` cuts the data, a segment has one element or none. A replica passes a
segment on as soon as it has arrived. It has the result when it has received all its segments and all that it sends is
on its way. At most as many segments as are not empty may be on their way to a replica or wait there. A further one
waits until the replica has reported free room to the previous one, in this iteration or the last.
"""

from collections import deque
from collections.abc import Sequence

from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.rings.shared_ring import Done
from wanbed.runner.tcp.channel import Channel
from wanbed.workloads.transport.ring.ring_round import cut_segments


class SparseRing:
    """The replicas of one stage, in the ring's order. ``channels[i]`` leads from position i to the next one.

    ``steps`` is how many segments each replica would send if none were empty.
    """

    def __init__(
        self, channels: Sequence[Channel], size_bytes: int, steps: int, events: EventQueue, element_bytes: int = 1
    ) -> None:
        self.channels = channels
        self.steps = steps
        self.events = events
        self.element_bytes = element_bytes
        cut = cut_segments(size_bytes, element_bytes, len(channels))
        self.segments = [number for number, (start, end) in enumerate(cut) if end > start]
        self._rounds: dict[int, _Round] = {}
        self._credit = [len(self.segments)] * len(channels)
        self._unsent: list[deque[tuple[_Round, int]]] = [deque() for _ in channels]

    def join(self, iteration: int, position: int, now_ns: int, done: Done) -> None:
        """Handle that the replica at ``position`` is ready."""
        current = self._rounds.get(iteration)
        if current is None:
            current = self._rounds[iteration] = _Round(self)
        current.join(position, now_ns, done)
        if current.joined == len(self.channels):
            # Pending events still refer to the round.
            del self._rounds[iteration]

    def send(self, ring_round: "_Round", position: int, step: int, now_ns: int) -> None:
        """Send the segment of ``step`` to the next position once there is room for it."""
        self._unsent[position].append((ring_round, step))
        self._send_next(position, now_ns)

    def give_credit(self, position: int, segments: int, now_ns: int) -> None:
        """Report to the previous position that ``segments`` segments have been used at this one."""
        before = (position - 1) % len(self.channels)
        self.events.at(self.channels[before].report_ns(now_ns), self._credited, (before, segments))

    def _credited(self, now_ns: int, what: tuple[int, int]) -> None:
        position, segments = what
        self._credit[position] += segments
        self._send_next(position, now_ns)

    def _send_next(self, position: int, now_ns: int) -> None:
        unsent, channel, events = self._unsent[position], self.channels[position], self.events
        while unsent and self._credit[position]:
            self._credit[position] -= 1
            ring_round, step = unsent.popleft()

            def left(_: int, end_ns: int, ring_round: "_Round" = ring_round, step: int = step) -> None:
                arrival_ns = channel.arrival_ns(max(end_ns, events.now_ns))
                events.at(arrival_ns, ring_round.arrived, ((position + 1) % len(self.channels), step))

            channel.queue(now_ns, self.element_bytes, left)
            ring_round.sent(position, now_ns)


class _Round:
    """One all-reduce: what each position still has to receive and send, and which segments wait until it is ready."""

    def __init__(self, ring: SparseRing) -> None:
        self._ring = ring
        self._count = count = len(ring.channels)
        self._steps = ring.steps
        self._batch = max(1, len(ring.segments) // 4)
        self.joined = 0
        self._ready_ns = [-1] * count
        self._done: list[Done | None] = [None] * count
        self._early: list[list[int]] = [[] for _ in range(count)]
        self._sends, self._receives, self._used = [0] * count, [0] * count, [0] * count
        for segment in ring.segments:
            for step in range(self._steps):
                self._sends[(segment + step) % count] += 1
                self._receives[(segment + step + 1) % count] += 1

    def join(self, position: int, now_ns: int, done: Done) -> None:
        """Handle that the replica at ``position`` is ready."""
        self.joined += 1
        self._ready_ns[position], self._done[position] = now_ns, done
        if position in self._ring.segments:
            self._ring.send(self, position, 0, now_ns)
        for step in self._early[position]:
            self._use(position, step, now_ns)
        self._end(position, now_ns)

    def sent(self, position: int, now_ns: int) -> None:
        """Handle that a segment is on its way to the next position."""
        self._sends[position] -= 1
        self._end(position, now_ns)

    def arrived(self, now_ns: int, what: tuple[int, int]) -> None:
        """Handle that a position has received the segment that the previous one sent in a step."""
        position, step = what
        if self._ready_ns[position] < 0:
            self._early[position].append(step)
        else:
            self._use(position, step, now_ns)

    def _use(self, position: int, step: int, now_ns: int) -> None:
        self._receives[position] -= 1
        self._used[position] += 1
        if step + 1 < self._steps:
            self._ring.send(self, position, step + 1, now_ns)
        if self._used[position] >= self._batch or not self._receives[position]:
            self._ring.give_credit(position, self._used[position], now_ns)
            self._used[position] = 0
        self._end(position, now_ns)

    def _end(self, position: int, now_ns: int) -> None:
        done = self._done[position]
        if done is not None and not self._sends[position] and not self._receives[position]:
            self._done[position] = None
            done(self._ready_ns[position], now_ns)
