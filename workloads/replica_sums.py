"""Sum the gradients of a rank with those of the other replicas of its stage, or synchronise with them seldom.

Each way to sum is a class. Replicas that train alone synchronise in a thread of its own, over a ring or a star, beside
the iterations in between: begun after one iteration, applied after another.

A training that clips gradients by their global norm cannot change any weight before all gradients are known, so that
every optimizer step waits for the all-reduce of one number over all ranks. The number is the sum of the squares of the
rank's own gradients, where its back end computes them, and 0 otherwise. Nothing is clipped, so that losses are those of
a training that does not wait.
"""

import struct
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wanbed.results.records.span_log import NO_MICROBATCH, NORM, Span
from wanbed.workloads.compute.compute import BucketCompute, Compute, FlushCompute, SynchronizedCompute
from wanbed.workloads.schedules.action import Action
from wanbed.workloads.schedules.schedule import Schedule
from wanbed.workloads.transport.all_reduce import AllReduce
from wanbed.workloads.transport.event import BucketSummed, DeviceSummed, SegmentReceived, SegmentsSent
from wanbed.workloads.transport.links_config import NORM_BYTES, LinksConfig
from wanbed.workloads.transport.ring_sum import RingAllReduce
from wanbed.workloads.transport.star_sum import Gathering
from wanbed.workloads.transport.striped_transport import StripedTransport
from wanbed.workloads.transport.summing_thread import SummingThread

if TYPE_CHECKING:
    from wanbed.workloads.collective.device_all_reduce import DeviceAllReduce

_NUMBER = struct.Struct("=f")


class GradientNorm:
    """One rank's side of the all-reduce, over the ring ``norm`` of the configuration.

    ``squares`` returns the sum of the squares of the rank's gradients once they are complete, None for none.
    """

    def __init__(self, config: LinksConfig, transport: StripedTransport, squares: Callable[[], float] | None) -> None:
        self._ring = RingAllReduce(config, transport, of_norm=True)
        self._number = len(config.rings.replicas)
        self._squares = squares

    def owns(self, event: SegmentReceived | SegmentsSent) -> bool:
        """Return whether an event is one of this ring."""
        return event.ring == self._number

    def handle(self, event: SegmentReceived | SegmentsSent) -> None:
        """Handle an event of this ring."""
        self._ring.handle(event)

    def await_all(self, iteration: int, await_event: Callable[[], None]) -> Span:
        """Return the span of the all-reduce, which ends when the numbers of all ranks are summed here.

        ``await_event`` is as for ``RingAllReduce.run``.
        """
        start_ns = time.monotonic_ns()
        number = bytearray(_NUMBER.pack(0.0 if self._squares is None else self._squares()))
        self._ring.run(iteration, memoryview(number), NORM_BYTES, _add, await_event)
        return Span(NORM, iteration, NO_MICROBATCH, start_ns, time.monotonic_ns(), NORM_BYTES)


def _add(total: memoryview, part: memoryview) -> None:
    _NUMBER.pack_into(total, 0, _NUMBER.unpack_from(total)[0] + _NUMBER.unpack_from(part)[0])


Interval = tuple[int, int]
"""Start and end of a computation in CLOCK_MONOTONIC nanoseconds."""

_AwaitEvent = Callable[[], None]
"""Waits for one event of the rank and handles it, an event of the sums by ``ReplicaSums.handle``."""

_SumsEvent = BucketSummed | DeviceSummed | SegmentReceived | SegmentsSent


class ReplicaSums:
    """The sums of a rank that computes by ``compute``. This class has none: no other rank has this stage."""

    def __init__(self, compute: Compute) -> None:
        self._compute = compute

    def perform(self, action: Action, schedule: Schedule, stage: int) -> Interval:
        """Compute an action of ``stage``. Return its start and end."""
        return self._compute.perform(action)

    def sum_gradients(self, iteration: int, await_event: _AwaitEvent) -> Span | None:
        """Wait until the optimizer may use the gradients. Return the span of the sum if ``handle`` has not."""
        return None

    def sum_flush(self, iteration: int, flush: int, await_event: _AwaitEvent) -> Span | None:
        """Wait until the gradients of a flush are summed, and keep them. Return the span of the sum, if there is one.

        Raise TypeError for a computation that does not keep them.
        """
        if not isinstance(self._compute, FlushCompute):
            raise TypeError(f"{type(self._compute).__name__} keeps no sum of a flush")
        summed = self._summed_flush(iteration, flush, await_event)
        self._compute.keep_sum()
        return summed

    def _summed_flush(self, iteration: int, flush: int, await_event: _AwaitEvent) -> Span | None:
        return self.sum_gradients(iteration, await_event)

    def synchronize(self, iteration: int, await_event: _AwaitEvent) -> list[Interval]:
        """Exchange pseudo-gradients after the optimizer. Return what has been computed for that."""
        return []

    def handle(self, event: _SumsEvent, iteration: int) -> Span | None:
        """Handle an event that comes in ``iteration``. Return the span of a sum that has ended, if one has."""
        raise AssertionError(f"{event} came to a rank that does not wait for it")

    def close(self) -> None:
        """Release what the sums hold, after the last one."""


class TransportSums(ReplicaSums):
    """All-reduces the gradients over connections once all are computed. An element has ``element_bytes``.

    There are ``sums`` in an iteration: one, or one for each of its flushes.
    """

    def __init__(self, compute: Compute, over: AllReduce, element_bytes: int, sums: int = 1) -> None:
        super().__init__(compute)
        self._over = over
        self._element_bytes = element_bytes
        self._sums = sums

    def sum_gradients(self, iteration: int, await_event: _AwaitEvent) -> Span | None:
        """Return the span of the all-reduce, the last of the iteration, None if there is nothing to sum."""
        return self._summed_flush(iteration, self._sums - 1, await_event)

    def _summed_flush(self, iteration: int, flush: int, await_event: _AwaitEvent) -> Span | None:
        gradients = self._compute.gradients()
        if gradients is None:
            return None
        number, start_ns = iteration * self._sums + flush, time.monotonic_ns()
        self._over.run(number, gradients, self._element_bytes, self._compute.add, await_event)
        return Span("all_reduce", iteration, NO_MICROBATCH, start_ns, time.monotonic_ns(), gradients.nbytes)

    def handle(self, event: _SumsEvent, iteration: int) -> Span | None:
        """Handle an event of the all-reduce."""
        if not isinstance(event, SegmentReceived | SegmentsSent):
            return super().handle(event, iteration)
        self._over.handle(event)
        return None


class BucketSums(ReplicaSums):
    """All-reduces ``buckets`` of gradients in the thread ``sums``, beside the last backward, which completes them."""

    def __init__(self, compute: BucketCompute, sums: SummingThread, buckets: int) -> None:
        super().__init__(compute)
        self._in_buckets = compute
        self._sums = sums
        self._buckets = buckets
        self._unsummed = 0

    def perform(self, action: Action, schedule: Schedule, stage: int) -> Interval:
        """Compute an action. The last one to compute gradients completes buckets, which are summed meanwhile."""
        if not schedule.completes_gradients(stage, action):
            return super().perform(action, schedule, stage)
        self._unsummed = self._buckets
        return self._in_buckets.perform_in_buckets(action, self._buckets, self._sums.complete)

    def sum_gradients(self, iteration: int, await_event: _AwaitEvent) -> Span | None:
        """Wait until all buckets are summed. ``handle`` has returned their spans."""
        while self._unsummed:
            await_event()
        return None

    def handle(self, event: _SumsEvent, iteration: int) -> Span | None:
        """Return the span of a bucket."""
        if not isinstance(event, BucketSummed):
            return super().handle(event, iteration)
        self._unsummed -= 1
        return _summed_span(event, iteration)

    def close(self) -> None:
        """End the thread."""
        self._sums.close()


class DeviceSums(ReplicaSums):
    """All-reduces the gradients by torch, on the device."""

    def __init__(self, compute: Compute, all_reduce: "DeviceAllReduce") -> None:
        super().__init__(compute)
        self._all_reduce = all_reduce
        self._summed = False

    def sum_gradients(self, iteration: int, await_event: _AwaitEvent) -> Span | None:
        """Return the span of the all-reduce."""
        start_ns, self._summed = time.monotonic_ns(), False
        size_bytes = self._all_reduce.start()
        while not self._summed:
            await_event()
        return Span("all_reduce", iteration, NO_MICROBATCH, start_ns, time.monotonic_ns(), size_bytes)

    def handle(self, event: _SumsEvent, iteration: int) -> Span | None:
        """Handle the end of the all-reduce."""
        self._summed = True
        return None

    def close(self) -> None:
        """Leave the process group."""
        self._all_reduce.close()


def _summed_span(event: BucketSummed, iteration: int) -> Span:
    """Return the span of a sum by a thread."""
    return Span("all_reduce", iteration, NO_MICROBATCH, event.start_ns, event.end_ns, event.size_bytes)


class ReplicaSynchronization(ReplicaSums):
    """The synchronisations of one rank in ``iterations`` iterations. ``sums`` reports BucketSummed, or Failed.

    ``applied`` is how many have been applied, of which those count too that were before this rank began.
    """

    def __init__(
        self,
        compute: Compute,
        synchronized: SynchronizedCompute,
        sums: SummingThread,
        *,
        iterations: int,
        applied: int = 0,
    ) -> None:
        super().__init__(compute)
        self._rules = synchronized.rules
        self._synchronized = synchronized
        self._iterations = iterations
        self._sums = sums
        self.applied = applied
        self._under_way: _UnderWay | None = None
        self._unsummed = 0
        self._parts = 0

    def synchronize(self, iteration: int, await_event: _AwaitEvent) -> list[Interval]:
        """Begin the synchronisation that begins after ``iteration``, and apply the one that is applied after it.

        Return when a pseudo-gradient has been encoded and an outer step taken, as far as anything is computed for it.
        """
        computed: list[Interval | None] = []
        fragment, applied_after = self._rules.fragment_begun(iteration), self._rules.applied_after(iteration)
        if fragment is not None and applied_after < self._iterations:
            computed.append(self._begin(_UnderWay(fragment, applied_after)))
        under_way = self._under_way
        if under_way is not None and under_way.applied_after == iteration:
            while self._unsummed:
                await_event()
            self._under_way = None
            self.applied += 1
            computed.append(self._synchronized.apply(under_way.fragment, self._parts))
        return [each for each in computed if each is not None]

    def _begin(self, begun: "_UnderWay") -> Interval | None:
        encoded = self._synchronized.encode(begun.fragment)
        self._under_way = begun
        self._unsummed += 1
        self._sums.complete(lambda: self._synchronized.encoded(begun.fragment))
        return encoded

    def handle(self, event: _SumsEvent, iteration: int) -> Span | None:
        """Return the span of the sum, in the iteration after which it is applied."""
        under_way = self._under_way
        if not isinstance(event, BucketSummed) or under_way is None:
            return super().handle(event, iteration)
        self._unsummed -= 1
        self._parts = event.parts
        return _summed_span(event, under_way.applied_after)

    def state(self, size_bytes: int) -> memoryview | None:
        """Return what a replica begins with that joins after this iteration; None while a synchronisation is under way.

        Raise ValueError if it has another size.
        """
        return None if self._under_way is not None else self._synchronized.state(size_bytes)

    def close(self) -> None:
        """End the thread."""
        self._sums.close()


@dataclass(frozen=True, slots=True)
class _UnderWay:
    fragment: int
    applied_after: int


@dataclass(frozen=True)
class Gatherer:
    """The rank that gathers a star: ``gathering`` sums the parts of all, and this rank's are ``synchronization``."""

    gathering: Gathering
    synchronization: ReplicaSynchronization

    def admit(self, joining: AbstractSet[int], iteration: int) -> bool:
        """Let replicas that have come back begin with ``iteration``, as this rank is before it.

        Return False while a synchronisation is under way, when none can begin.
        """
        state = self.synchronization.state(self.gathering.star.state_bytes)
        if state is None:
            return False
        for rank in sorted(joining):
            self.gathering.admit(rank, iteration, self.synchronization.applied, state)
        return True
