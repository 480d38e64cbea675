"""One rank's synchronisations with the other replicas of its stage: begun after one iteration, applied after another.

The sum runs in a thread of its own, over a ring or a star, beside the iterations in between.
"""

from wanbed.workloads.compute.compute import SynchronizedCompute
from wanbed.workloads.synchronization.synchronization import Synchronization
from wanbed.workloads.transport.summing_thread import SummingThread

Interval = tuple[int, int]
"""Start and end of a computation in CLOCK_MONOTONIC nanoseconds."""


class ReplicaSynchronization:
    """The synchronisations of one rank in ``iterations`` iterations. ``sums`` reports BucketSummed, or Failed.

    ``applied`` is how many have been applied, of which those count too that were before this rank began.
    """

    def __init__(
        self,
        synchronization: Synchronization,
        compute: SynchronizedCompute,
        sums: SummingThread,
        *,
        iterations: int,
        applied: int = 0,
    ) -> None:
        self._synchronization = synchronization
        self._compute = compute
        self._iterations = iterations
        self._sums = sums
        self.applied = applied
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
        self._sums.complete(lambda: self._compute.encoded(fragment))
        return applied, encoded

    def applies(self, iteration: int) -> bool:
        """Return whether the synchronisation under way is applied after ``iteration``."""
        return self._under_way is not None and self._synchronization.fragment_applied(iteration) is not None

    def state(self, size_bytes: int) -> memoryview | None:
        """Return what a replica begins with that joins after this iteration; None while a synchronisation is under way.

        Raise ValueError if it has another size.
        """
        return None if self._under_way is not None else self._compute.state(size_bytes)

    def apply(self, parts: int) -> Interval | None:
        """Take the outer step of the synchronisation that has been summed, of ``parts`` pseudo-gradients.

        Return when, None if nothing is computed.
        """
        assert self._under_way is not None
        fragment, self._under_way = self._under_way, None
        self.applied += 1
        return self._compute.apply(fragment, parts)

    def close(self) -> None:
        """End the thread."""
        self._sums.close()
