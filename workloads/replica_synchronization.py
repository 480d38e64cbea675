"""One rank's synchronisations with the other replicas of its stage: begun after one iteration, applied after another.

The all-reduce runs in the ring's own thread, beside the iterations in between.
"""

from collections.abc import Callable

from workloads.compute.compute import SynchronizedCompute
from workloads.synchronization.synchronization import Synchronization
from workloads.transport.event import Event
from workloads.transport.ring.bucket_ring import BucketRing, RingEvents
from workloads.transport.ring.ring import RingAllReduce

Interval = tuple[int, int]
"""Start and end of a computation in CLOCK_MONOTONIC nanoseconds."""


class ReplicaSynchronization:
    """The synchronisations of one rank in ``iterations`` iterations. Its thread reports BucketSummed, or Failed."""

    def __init__(
        self,
        synchronization: Synchronization,
        compute: SynchronizedCompute,
        ring: RingAllReduce,
        ring_events: RingEvents,
        *,
        report: Callable[[Event], None],
        iterations: int,
    ) -> None:
        self._synchronization = synchronization
        self._compute = compute
        self._iterations = iterations
        self._ring = BucketRing(ring, ring_events, synchronization.wire.element_bytes, compute.add_encoded, report)
        self._under_way: int | None = None

    def begin(self, iteration: int) -> tuple[int, Interval | None] | None:
        """Begin the synchronisation that begins after ``iteration``; return None if there is none.

        Return the iteration after which it is applied, and when its pseudo-gradient was encoded, None if nothing is
        computed.
        """
        fragment = self._synchronization.fragment_begun(iteration)
        applied = self._synchronization.applied_after(iteration)
        if fragment is None or applied >= self._iterations:
            return None
        encoded = self._compute.encode(fragment)
        self._under_way = fragment
        self._ring.complete(lambda: self._compute.encoded(fragment))
        return applied, encoded

    def applies(self, iteration: int) -> bool:
        """Return whether the synchronisation under way is applied after ``iteration``."""
        return self._under_way is not None and self._synchronization.fragment_applied(iteration) is not None

    def apply(self) -> Interval | None:
        """Take the outer step of the synchronisation that has been summed. Return when, None if nothing is computed."""
        assert self._under_way is not None
        fragment, self._under_way = self._under_way, None
        return self._compute.apply(fragment)

    def close(self) -> None:
        """End the thread."""
        self._ring.close()
