"""One rank's synchronisations with the other replicas of its stage: begun after one iteration, applied after another.

The sum runs in a thread of its own, over a ring or a star, beside the iterations in between.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from wanbed.results.records.span_log import Span
from wanbed.workloads.compute.compute import Compute, SynchronizedCompute
from wanbed.workloads.replica_sums import AwaitEvent, Interval, ReplicaSums, SumsEvent, summed_span
from wanbed.workloads.transport.event import BucketSummed
from wanbed.workloads.transport.star.gathering import Gathering
from wanbed.workloads.transport.summing_thread import SummingThread


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

    def synchronize(self, iteration: int, await_event: AwaitEvent) -> list[Interval]:
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

    def handle(self, event: SumsEvent, iteration: int) -> Span | None:
        """Return the span of the sum, in the iteration after which it is applied."""
        under_way = self._under_way
        if not isinstance(event, BucketSummed) or under_way is None:
            return super().handle(event, iteration)
        self._unsummed -= 1
        self._parts = event.parts
        return summed_span(event, under_way.applied_after)

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
