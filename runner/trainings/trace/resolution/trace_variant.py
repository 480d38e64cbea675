"""Describe a variant whose ranks replay an execution trace."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wanbed.runner.resolve.placement import Pair, ring_order
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.stage_costs import StageCosts
from wanbed.runner.resolve.stage_rings import ring_pairs
from wanbed.workloads.trace.replayed_trace import ReplayedTrace


@dataclass(frozen=True, kw_only=True)
class TraceVariant(ResolvedVariant):
    """A variant whose ranks replay ``trace``. Each rank is a stage of the only pipeline."""

    trace: ReplayedTrace

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of ranks that send to each other, and of neighbours in a group's ring."""
        rank = self.placement.rank
        of_rings = {(rank(one), rank(other)) for ring in self.rings for one, other in ring}
        return self._pairs_of(self.trace.pairs | of_rings)

    @cached_property
    def rings(self) -> tuple[tuple[Pair, ...], ...]:
        """Each place with the next one of its ring, for every group that has collectives."""
        rings = (ring_order([self.placement.places[rank] for rank in group]) for group in self.trace.groups)
        return tuple(ring_pairs(ring) for ring in rings)

    def document(self) -> Mapping[str, Any]:
        """Return what the experiment file leaves open, as resolved, in plain JSON types."""
        return {
            "placement": self._places_document(),
            "microbatches": 1,
            "pipelines_per_cell": 1,
            "work": _work(self.trace).document(),
            "trace": self.trace.digest,
        }


def _work(trace: ReplayedTrace) -> StageCosts:
    """Return stage costs that say how long each rank computes, as one forward that sends nothing."""
    ranks = len(trace.ranks)
    none = (0,) * ranks
    computing_ns = tuple(trace.computing_ns(rank) for rank in range(ranks))
    return StageCosts(computing_ns, none, none, none, none, none, none[1:], none)
