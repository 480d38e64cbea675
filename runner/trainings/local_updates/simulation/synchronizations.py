"""Simulate the synchronisations of replicas that train alone, beside their iterations.

A rank behaves like ``wanbed.workloads.replica_synchronization``: after an iteration it joins the all-reduce of a
fragment, and after the iteration that is ``delay`` later it waits for the end of it. Encoding and the outer step take
no time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.simulated_ranks import RankState, SpanRows
from wanbed.runner.simulator.simulation import KIND_CODES, NO_PEER
from wanbed.runner.simulator.surroundings import AllReduce
from wanbed.runner.trainings.local_updates.resolution.local_updates_variant import LocalUpdatesVariant

GoOn = Callable[[int, RankState], None]
"""Is called once a rank's iteration is over, at that time."""

_NO_MICROBATCH = -1


@dataclass(slots=True)
class _UnderWay:
    """A rank's synchronisation. ``end_ns`` is its end, possibly future, None until it is known."""

    applied_after: int
    size_bytes: int
    end_ns: int | None = None
    go_on: GoOn | None = None


class Synchronizations:
    """The synchronisations of a training; none if the variant sums gradients in every iteration.

    Their spans are added to ``rows``, as all-reduces of the iteration after which they are applied.
    """

    def __init__(
        self, variant: PipelineVariant, iterations: int, events: EventQueue, rings: AllReduce, rows: SpanRows
    ) -> None:
        seldom = variant if isinstance(variant, LocalUpdatesVariant) else None
        self._synchronization = None if seldom is None else seldom.synchronization
        stages = range(0 if seldom is None else seldom.placement.stages)
        self._fragments_bytes = [seldom.fragments_bytes(stage) for stage in stages if seldom is not None]
        self._iterations = iterations
        self._events = events
        self._rings = rings
        self._rows = rows
        self._under_way: dict[int, _UnderWay] = {}

    def end_iteration(self, now_ns: int, rank: RankState, go_on: GoOn) -> None:
        """Begin the synchronisation that begins after the rank's iteration, and await the one that is applied then.

        Call ``go_on`` when the rank may begin its next iteration, maybe at once.
        """
        each, iteration = self._synchronization, rank.iteration
        if each is None:
            go_on(now_ns, rank)
            return
        fragment, applied_after = each.fragment_begun(iteration), each.applied_after(iteration)
        if fragment is not None and applied_after < self._iterations:
            size_bytes = self._fragments_bytes[rank.stage][fragment]
            self._under_way[rank.number] = _UnderWay(applied_after, size_bytes)
            number = each.count(applied_after + 1) - 1
            self._rings.join(rank.stage, number, rank.pipeline, now_ns, partial(self._summed, rank))
        under_way = self._under_way.get(rank.number)
        if under_way is None or under_way.applied_after > iteration:
            go_on(now_ns, rank)
            return
        under_way.go_on = go_on
        self._apply(rank, under_way)

    def is_under_way(self, rank: RankState) -> bool:
        """Return whether a rank has begun a synchronisation that it has not applied."""
        return rank.number in self._under_way

    def forget(self, rank: RankState) -> None:
        """Handle that a rank has been killed."""
        self._under_way.pop(rank.number, None)

    def _summed(self, rank: RankState, start_ns: int, end_ns: int) -> None:
        under_way = self._under_way[rank.number]
        under_way.end_ns = end_ns
        about = (rank.rank, KIND_CODES["all_reduce"], under_way.applied_after, _NO_MICROBATCH)
        self._rows.extend((*about, start_ns, end_ns, under_way.size_bytes, NO_PEER))
        self._apply(rank, under_way)

    def _apply(self, rank: RankState, under_way: _UnderWay) -> None:
        """Let the rank go on if it waits and the end of its synchronisation is known."""
        if under_way.end_ns is not None and under_way.go_on is not None:
            del self._under_way[rank.number]
            self._events.at(max(under_way.end_ns, self._events.now_ns), under_way.go_on, rank)
