"""Sum the gradients of a rank with those of the other replicas of its stage. Each way to do so is a class."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from wanbed.results.records.span_log import NO_MICROBATCH, Span
from wanbed.workloads.compute.compute import BucketCompute, Compute
from wanbed.workloads.schedules.action import Action
from wanbed.workloads.schedules.schedule import Schedule
from wanbed.workloads.transport.event import BucketSummed, DeviceSummed, SegmentReceived, SegmentsSent
from wanbed.workloads.transport.ring.ring import RingAllReduce
from wanbed.workloads.transport.summing_thread import SummingThread

if TYPE_CHECKING:
    from wanbed.workloads.collective.device_all_reduce import DeviceAllReduce

Interval = tuple[int, int]
"""Start and end of a computation in CLOCK_MONOTONIC nanoseconds."""
AwaitEvent = Callable[[], None]
"""Waits for one event of the rank and handles it, an event of the sums by ``ReplicaSums.handle``."""
SumsEvent = BucketSummed | DeviceSummed | SegmentReceived | SegmentsSent


class ReplicaSums:
    """The sums of a rank that computes by ``compute``. This class has none: no other rank has this stage."""

    def __init__(self, compute: Compute) -> None:
        self._compute = compute

    def perform(self, action: Action, schedule: Schedule, stage: int) -> Interval:
        """Compute an action of ``stage``. Return its start and end."""
        return self._compute.perform(action)

    def sum_gradients(self, iteration: int, await_event: AwaitEvent) -> Span | None:
        """Wait until the optimizer may use the gradients. Return the span of the sum if ``handle`` has not."""
        return None

    def synchronize(self, iteration: int, await_event: AwaitEvent) -> list[Interval]:
        """Exchange pseudo-gradients after the optimizer. Return what has been computed for that."""
        return []

    def handle(self, event: SumsEvent, iteration: int) -> Span | None:
        """Handle an event that comes in ``iteration``. Return the span of a sum that has ended, if one has."""
        raise AssertionError(f"{event} came to a rank that does not wait for it")

    def close(self) -> None:
        """Release what the sums hold, after the last one."""


class RingSums(ReplicaSums):
    """All-reduces the gradients over a ring once all are computed. An element has ``element_bytes``."""

    def __init__(self, compute: Compute, ring: RingAllReduce, element_bytes: int) -> None:
        super().__init__(compute)
        self._ring = ring
        self._element_bytes = element_bytes

    def sum_gradients(self, iteration: int, await_event: AwaitEvent) -> Span | None:
        """Return the span of the all-reduce, None if there is nothing to sum."""
        gradients = self._compute.gradients()
        if gradients is None:
            return None
        start_ns = time.monotonic_ns()
        self._ring.run(iteration, gradients, self._element_bytes, self._compute.add, await_event)
        return Span("all_reduce", iteration, NO_MICROBATCH, start_ns, time.monotonic_ns(), gradients.nbytes)

    def handle(self, event: SumsEvent, iteration: int) -> Span | None:
        """Handle an event of the ring."""
        if not isinstance(event, SegmentReceived | SegmentsSent):
            return super().handle(event, iteration)
        self._ring.handle(event)
        return None


class BucketSums(ReplicaSums):
    """All-reduces ``buckets`` of gradients in the thread ``sums``, beside the last backward, which completes them."""

    def __init__(self, compute: Compute, in_buckets: BucketCompute, sums: SummingThread, buckets: int) -> None:
        super().__init__(compute)
        self._in_buckets = in_buckets
        self._sums = sums
        self._buckets = buckets
        self._unsummed = 0

    def perform(self, action: Action, schedule: Schedule, stage: int) -> Interval:
        """Compute an action. The last one to compute gradients completes buckets, which are summed meanwhile."""
        if not schedule.completes_gradients(stage, action):
            return super().perform(action, schedule, stage)
        self._unsummed = self._buckets
        return self._in_buckets.perform_in_buckets(action, self._buckets, self._sums.complete)

    def sum_gradients(self, iteration: int, await_event: AwaitEvent) -> Span | None:
        """Wait until all buckets are summed. ``handle`` has returned their spans."""
        while self._unsummed:
            await_event()
        return None

    def handle(self, event: SumsEvent, iteration: int) -> Span | None:
        """Return the span of a bucket."""
        if not isinstance(event, BucketSummed):
            return super().handle(event, iteration)
        self._unsummed -= 1
        return summed_span(event, iteration)

    def close(self) -> None:
        """End the thread."""
        self._sums.close()


class DeviceSums(ReplicaSums):
    """All-reduces the gradients by torch, on the device."""

    def __init__(self, compute: Compute, all_reduce: "DeviceAllReduce") -> None:
        super().__init__(compute)
        self._all_reduce = all_reduce
        self._summed = False

    def sum_gradients(self, iteration: int, await_event: AwaitEvent) -> Span | None:
        """Return the span of the all-reduce."""
        start_ns, self._summed = time.monotonic_ns(), False
        size_bytes = self._all_reduce.start()
        while not self._summed:
            await_event()
        return Span("all_reduce", iteration, NO_MICROBATCH, start_ns, time.monotonic_ns(), size_bytes)

    def handle(self, event: SumsEvent, iteration: int) -> Span | None:
        """Handle the end of the all-reduce."""
        self._summed = True
        return None

    def close(self) -> None:
        """Leave the process group."""
        self._all_reduce.close()


def summed_span(event: BucketSummed, iteration: int) -> Span:
    """Return the span of a sum by a thread."""
    return Span("all_reduce", iteration, NO_MICROBATCH, event.start_ns, event.end_ns, event.size_bytes)
