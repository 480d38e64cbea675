"""Simulate ring all-reduces: of a stage's gradients at once, in buckets, or of fewer elements than replicas.

The algorithm is that of ``wanbed.workloads.transport.ring_sum``. With P replicas the gradients are cut into P
segments, and in each of 2(P-1) steps every replica sends one segment to the next replica. Segments are sent in chunks.
A replica begins a step once the first chunk of the step's segment and the whole segment of the step before have arrived
from the previous replica, and ends it no earlier than the step's segment has arrived. For A bytes on equal lines of
rate R without latency this takes ``2 (P-1)/P x A / R``.

- Over private channels ``all_reduce_ends_ns`` computes the result as soon as all replicas are ready.
- In a ``SharedRing`` channels share resources with other traffic. Each replica begins when it is ready, and the
  duration of a step is known only when it has left.
- A ``SparseRing`` sums fewer elements than replicas, as ``wanbed.workloads.transport.ring_round`` cuts them: a
  segment has one element or none, and empty segments are not sent. A replica passes a segment on as soon as it has
  arrived. It has the result when it has received all its segments and all that it sends is on its way. At most as many
  segments as are not empty may be on their way to a replica or wait there. A further one waits until the replica has
  reported free room to the previous one, in this iteration or the last.
- ``BucketSum`` all-reduces buckets one after the other, while the GPU computes the rest of the gradients.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from wanbed.flow.channel import Channel, PrivateChannel, Transfer
from wanbed.flow.event_queue import Event, EventQueue
from wanbed.flow.line import Line
from wanbed.flow.shared_channel import ChangingChannel
from wanbed.flow.striping import Striping
from wanbed.workloads.transport.ring_round import complete_ns, cut_segments, ring_chunk_bytes, ring_window_chunks


@dataclass(frozen=True)
class RingCut:
    """The cut of gradients into segments and chunks. Segments whose sizes differ by a byte count as equal.

    A segment is sent as two parts: its first chunk, with which the next replica can begin its next step, and the rest.
    With ``halved`` a round has half of the steps: it is a reduce-scatter or an all-gather, which take equally long.
    """

    replicas: int
    segment_bytes: int
    chunk_bytes: int
    halved: bool = False

    @staticmethod
    def of(
        size_bytes: int,
        replicas: int,
        connections: int = 1,
        *,
        piece_bytes: int | None = None,
        halved: bool = False,
    ) -> "RingCut":
        """Cut as ``wanbed.workloads.transport.ring_round`` does; ``connections`` is the most of two replicas."""
        chunk_bytes = ring_chunk_bytes(size_bytes, 1, replicas, connections, piece_bytes)
        return RingCut(replicas, -(-size_bytes // replicas), chunk_bytes, halved)

    @property
    def steps(self) -> int:
        """The number of segments that each replica sends in a round."""
        return (self.replicas - 1) * (1 if self.halved else 2)

    @property
    def parts_bytes(self) -> tuple[int, int]:
        """The sizes of a segment's first chunk and of its rest."""
        first_bytes = min(self.chunk_bytes, self.segment_bytes)
        return first_bytes, self.segment_bytes - first_bytes

    @property
    def chunks(self) -> int:
        """The number of chunks in a segment."""
        return -(-self.segment_bytes // self.chunk_bytes)

    @property
    def window_holds_all(self) -> bool:
        """Tell whether the window admits all chunks of the data at once, on their way to a replica or waiting there."""
        return ring_window_chunks([self.chunks] * self.replicas, self.chunk_bytes) == self.replicas * self.chunks

    def awaited(self, step: int) -> tuple[int, bool] | None:
        """Return the step that the next replica must have reported as used before ``step`` begins, None if none.

        The result is a step and whether all of it is needed or only its first chunk. It assumes a window that holds all
        chunks. Replicas report used chunks in batches of a quarter of the window.
        """
        chunks, window = self.chunks, self.replicas * self.chunks
        batch = max(1, window // 4)
        used = step * chunks + min(chunks, 2) - window
        if used <= 0:
            return None
        last, index = divmod(-(-used // batch) * batch - 1, chunks)
        return (last, 2 * index >= chunks or chunks == 1) if last < step else (step - 1, True)

    def stripings(self, connections: int) -> tuple[Striping | None, Striping | None]:
        """Return the striping of first chunk and rest over ``connections``, None where there is nothing to stripe."""
        first_bytes, rest_bytes = self.parts_bytes
        if connections == 1:
            return None, None
        rest = -(-rest_bytes // self.chunk_bytes)
        return Striping(connections, 1, first_bytes), Striping(connections, rest, self.chunk_bytes) if rest else None


def all_reduce_ends_ns(
    starts_ns: Sequence[int],
    channels: Sequence[PrivateChannel],
    cut: RingCut,
    connections: Sequence[int] | None = None,
) -> list[int]:
    """Return when each replica of a ring has the result, given when each is ready.

    ``channels[i]`` leads from replica i to the next one, over ``connections[i]`` TCP connections (default: one each).
    If the ring has more replicas than are given, the given ones repeat around the ring.
    """
    positions = len(starts_ns)
    stripings = [cut.stripings(count) for count in connections or [1] * positions]
    first_bytes, rest_bytes = cut.parts_bytes
    # Arrivals at each position: the first chunk of the last step, all of the last step, all of the step before it.
    first_ns, whole_ns, before_ns = list(starts_ns), list(starts_ns), list(starts_ns)
    left_ns = list(starts_ns)
    for _ in range(cut.steps):
        arrivals_ns = [(0, 0)] * positions
        for position, channel in enumerate(channels):
            first, rest = stripings[position]
            begin_ns = max(first_ns[position], before_ns[position])
            _, chunk_ns = channel.transmit(begin_ns, first_bytes, first)
            end_ns = max(chunk_ns, whole_ns[position], left_ns[position])
            if rest_bytes:
                end_ns = max(end_ns, channel.transmit(begin_ns, rest_bytes, rest)[1])
            left_ns[position] = end_ns
            latency_ns = channel.line.latency_ns
            arrivals_ns[(position + 1) % positions] = chunk_ns + latency_ns, end_ns + latency_ns
        before_ns = whole_ns
        first_ns = [max(chunk_ns, start_ns) for (chunk_ns, _), start_ns in zip(arrivals_ns, starts_ns, strict=True)]
        whole_ns = [max(end_ns, start_ns) for (_, end_ns), start_ns in zip(arrivals_ns, starts_ns, strict=True)]
    return [max(whole, channel.accepted_ns) for whole, channel in zip(whole_ns, channels, strict=True)]


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
        self.steps = cut.steps
        self.first_bytes, self.rest_bytes = cut.parts_bytes
        self.stripings = [cut.stripings(count) for count in connections]
        self.events = events
        # Where latencies change, data may take longer around at some time.
        changes = any(isinstance(channel, ChangingChannel) for channel in channels)
        self.awaits_room = cut.window_holds_all if changes else awaits_room([channel.line for channel in channels], cut)
        self.awaited = [cut.awaited(step) for step in range(cut.steps)] if self.awaits_room else []
        self._rounds: dict[int, _SharedRound] = {}

    def join(self, iteration: int, position: int, now_ns: int, done: Done) -> None:
        """Handle that the replica at ``position`` is ready."""
        current = self._rounds.get(iteration)
        if current is None:
            current = self._rounds[iteration] = _SharedRound(self)
        current.join(position, now_ns, done)
        if current.joined == len(self.channels):
            # Pending events still refer to the round.
            del self._rounds[iteration]


class _ChunkArrived(Event):
    """The arrival of the first chunk of a step's segment at a position, or of all of it if it ``is_whole``."""

    __slots__ = ("is_whole", "position", "ring_round", "step")

    def __init__(self, ring_round: "_SharedRound", position: int, step: int, *, is_whole: bool) -> None:
        self.turn = 0
        self.following = None
        self.ring_round = ring_round
        self.position = position
        self.step = step
        self.is_whole = is_whole

    def happen(self, now_ns: int) -> None:
        """Let the position go on."""
        if self.is_whole:
            self.ring_round.segment_arrived(now_ns, self.position, self.step)
        else:
            self.ring_round.chunk_arrived(now_ns, self.position, self.step)


class _SegmentLeft(Event):
    """The end of sending a step's segment, which has left by ``left_ns``."""

    __slots__ = ("left_ns", "position", "ring_round", "step")

    def __init__(self, ring_round: "_SharedRound", position: int, step: int, left_ns: int) -> None:
        self.turn = 0
        self.following = None
        self.ring_round = ring_round
        self.position = position
        self.step = step
        self.left_ns = left_ns

    def happen(self, now_ns: int) -> None:
        """Let the position go on."""
        self.ring_round.segment_left(now_ns, self.position, self.step, self.left_ns)


class _SegmentPart(Transfer):
    """The first chunk of a step's segment on its way to the next position, or what follows its ``first_part``."""

    __slots__ = ("first_part", "last_ns", "position", "ring_round", "step")

    def __init__(
        self,
        ring_round: "_SharedRound",
        position: int,
        step: int,
        first_part: "_SegmentPart | None",
        *,
        available_ns: int,
        size_bytes: int,
        striping: Striping | None,
        is_watched: bool,
    ) -> None:
        self.available_ns = available_ns
        self.size_bytes = size_bytes
        self.striping = striping
        self.at_once = False
        self.is_watched = is_watched
        self.following = None
        self.ring_round = ring_round
        self.position = position
        self.step = step
        self.first_part = first_part
        self.last_ns = 0

    def left(self, first_ns: int, last_ns: int) -> None:
        """Let it arrive."""
        self.last_ns = last_ns
        self.ring_round.part_left(self)

    def accepted(self, at_ns: int) -> None:
        """Let the position know."""
        self.ring_round.accept(self.position, at_ns)


class _SharedRound:
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
        self._left_ns: list[dict[int, int]] = [{} for _ in range(count)]
        self._whole_ns: list[dict[int, int]] = [{-1: 0} for _ in range(count)]
        self._complete_ns = [0] * count
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
        steps = self._ring.steps
        while (
            (step := self._begun[position] + 1) < steps
            and self._first_arrived[position] >= step - 1
            and self._whole_arrived[position] >= step - 2
            and self._has_room(position, step)
        ):
            self._begin(position, step, now_ns)
        left_ns = self._left_ns[position]
        while (step := self._complete[position] + 1) in left_ns and self._whole_arrived[position] >= step - 1:
            self._complete[position] = step
            whole_ns = self._whole_ns[position].pop(step - 1)
            complete_ns = max(left_ns.pop(step), whole_ns, self._complete_ns[position])
            self._complete_ns[position] = complete_ns
            arrival_ns = max(self._ring.channels[position].arrival_ns(complete_ns), now_ns)
            following = (position + 1) % self._count
            self._ring.events.add(arrival_ns, _ChunkArrived(self, following, step, is_whole=True))
        done = self._done[position]
        if done is not None and self._accepted[position] and self._whole_arrived[position] == steps - 1:
            self._done[position] = None
            done(self._ready_ns[position], now_ns)

    def _begin(self, position: int, step: int, now_ns: int) -> None:
        self._begun[position] = step
        channel = self._ring.channels[position]
        first_bytes, rest_bytes = self._ring.first_bytes, self._ring.rest_bytes
        first, rest = self._ring.stripings[position]
        is_last = step == self._ring.steps - 1
        first_part = _SegmentPart(
            self,
            position,
            step,
            None,
            available_ns=now_ns,
            size_bytes=first_bytes,
            striping=first,
            is_watched=is_last and not rest_bytes,
        )
        channel.send(first_part)
        if rest_bytes:
            rest_part = _SegmentPart(
                self,
                position,
                step,
                first_part,
                available_ns=now_ns,
                size_bytes=rest_bytes,
                striping=rest,
                is_watched=is_last,
            )
            channel.send(rest_part)

    def part_left(self, part: _SegmentPart) -> None:
        """Handle that a part of a segment has left, or will have."""
        position, step, left_ns = part.position, part.step, part.last_ns
        events = self._ring.events
        first_part = part.first_part
        if first_part is None:
            arrival_ns = max(self._ring.channels[position].arrival_ns(left_ns), events.now_ns)
            events.add(arrival_ns, _ChunkArrived(self, (position + 1) % self._count, step, is_whole=False))
            if self._ring.rest_bytes:
                return
        else:
            left_ns = max(first_part.last_ns, left_ns)
        events.add(max(left_ns, events.now_ns), _SegmentLeft(self, position, step, left_ns))

    def accept(self, position: int, at_ns: int) -> None:
        """Handle that windows have let out the last bytes of a position, or will have."""
        self._ring.events.at(max(at_ns, self._ring.events.now_ns), self._has_been_accepted, position)

    def chunk_arrived(self, now_ns: int, position: int, step: int) -> None:
        """Handle that the first chunk of a step's segment has arrived at a position."""
        self._first_arrived[position] = max(self._first_arrived[position], step)
        self._report(position, now_ns)
        self._advance(position, now_ns)

    def segment_arrived(self, now_ns: int, position: int, step: int) -> None:
        """Handle that all of a step's segment has arrived at a position."""
        self._whole_arrived[position] = step
        self._whole_ns[position][step] = now_ns
        self._report(position, now_ns)
        self._advance(position, now_ns)

    def _has_been_accepted(self, now_ns: int, position: int) -> None:
        self._accepted[position] = True
        self._advance(position, now_ns)

    def segment_left(self, now_ns: int, position: int, step: int, left_ns: int) -> None:
        """Handle that a position has sent a step's segment."""
        self._left_ns[position][step] = left_ns
        self._advance(position, now_ns)


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
        self._rounds: dict[int, _SparseRound] = {}
        self._credit = [len(self.segments)] * len(channels)
        self._unsent: list[deque[tuple[_SparseRound, int]]] = [deque() for _ in channels]

    def join(self, iteration: int, position: int, now_ns: int, done: Done) -> None:
        """Handle that the replica at ``position`` is ready."""
        current = self._rounds.get(iteration)
        if current is None:
            current = self._rounds[iteration] = _SparseRound(self)
        current.join(position, now_ns, done)
        if current.joined == len(self.channels):
            # Pending events still refer to the round.
            del self._rounds[iteration]

    def send(self, ring_round: "_SparseRound", position: int, step: int, now_ns: int) -> None:
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

            def left(_: int, end_ns: int, ring_round: "_SparseRound" = ring_round, step: int = step) -> None:
                arrival_ns = max(channel.arrival_ns(end_ns), events.now_ns)
                events.at(arrival_ns, ring_round.arrived, ((position + 1) % len(self.channels), step))

            channel.queue(now_ns, self.element_bytes, left)
            ring_round.sent(position, now_ns)


class _SparseRound:
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


_JoinBucket = Callable[[int, int, Done], None]
"""Lets the replica join the all-reduce of a bucket, at a time."""

_BucketSummed = Callable[[int, int, int], None]
"""Called with the number of a bucket, and with the start and the end, possibly future, of its all-reduce."""


class BucketSum:
    """The all-reduces of ``buckets`` buckets of one replica in one iteration.

    A bucket is complete as ``complete_ns`` says. Its all-reduce begins then, or when that
    of the bucket before it has ended at this replica.
    """

    def __init__(
        self, events: EventQueue, buckets: int, join: _JoinBucket, summed: _BucketSummed, virtual_stages: int = 1
    ) -> None:
        self._events = events
        self._buckets = buckets
        self._join = join
        self._summed = summed
        self._virtual_stages = virtual_stages
        self._backward_ns = 0, 0

    def begin(self, start_ns: int, end_ns: int) -> None:
        """Handle that the backward that completes the buckets begins now, and will end at ``end_ns``."""
        self._backward_ns = start_ns, end_ns
        self._await(0, start_ns)

    def _await(self, bucket: int, free_ns: int) -> None:
        ready_ns = complete_ns(*self._backward_ns, bucket, self._buckets, self._virtual_stages)
        self._events.at(max(ready_ns, free_ns, self._events.now_ns), self._ready, bucket)

    def _ready(self, now_ns: int, bucket: int) -> None:
        self._join(bucket, now_ns, partial(self._ended, bucket))

    def _ended(self, bucket: int, start_ns: int, end_ns: int) -> None:
        self._summed(bucket, start_ns, end_ns)
        if bucket + 1 < self._buckets:
            self._await(bucket + 1, end_ns)
