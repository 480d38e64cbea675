"""Simulate the all-reduces of one replica's gradients in buckets, while its GPU computes the rest of them."""

from collections.abc import Callable
from functools import partial

from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.rings.shared_ring import Done
from wanbed.workloads.transport.ring.buckets import complete_ns

JoinBucket = Callable[[int, int, Done], None]
"""Lets the replica join the all-reduce of a bucket, at a time."""

BucketSummed = Callable[[int, int, int], None]
"""Called with the number of a bucket, and with the start and the end, possibly future, of its all-reduce."""


class BucketSum:
    """The all-reduces of ``buckets`` buckets of one replica in one iteration.

    A bucket is complete as ``complete_ns`` says. Its all-reduce begins then, or when that
    of the bucket before it has ended at this replica.
    """

    def __init__(
        self, events: EventQueue, buckets: int, join: JoinBucket, summed: BucketSummed, virtual_stages: int = 1
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
