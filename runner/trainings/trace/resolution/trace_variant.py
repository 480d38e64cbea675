"""Describe a variant whose ranks replay an execution trace."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wanbed.results.text import kind_text
from wanbed.runner.resolve.placement import Pair, ring_order
from wanbed.runner.resolve.resolved_variant import ResolvedVariant, Transfer
from wanbed.runner.resolve.stage_costs import StageCosts
from wanbed.runner.resolve.stage_rings import ring_pairs
from wanbed.workloads.trace.replayed_trace import ReplayedTrace, WorkKind


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

    def transfers(self) -> Iterator[Transfer]:
        """Yield each message of the trace, and the segments of each ring."""
        places, trace = self.placement.places, self.trace
        for rank, nodes in enumerate(trace.ranks):
            for node in nodes:
                if node.kind is WorkKind.SEND:
                    yield Transfer("a message", node.size_bytes, (places[rank], places[node.peer]))
                elif node.kind is WorkKind.COLLECTIVE and rank == trace.groups[node.group][0]:
                    ring, collective = self.rings[node.group], trace.collective(node)
                    what = f"a segment of a ring's {kind_text(collective.kind)}"
                    for pair in ring:
                        yield Transfer(what, collective.whole_bytes // len(ring), pair)

    def serial_s(self, transfer_s: Callable[[int], float]) -> float:
        """Return an upper bound of an iteration in seconds, as ``ResolvedVariant.serial_s`` says."""
        trace = self.trace
        computing_s = sum(trace.computing_ns(rank) for rank in range(len(trace.ranks))) / 1e9
        nodes = [node for own in trace.ranks for node in own]
        messages_s = sum(transfer_s(node.size_bytes) for node in nodes if node.kind is WorkKind.SEND)
        collectives = [trace.collective(node) for node in nodes if node.kind is WorkKind.COLLECTIVE]
        rings_s = sum(2 * transfer_s(each.whole_bytes) for each in collectives)
        return computing_s + messages_s + len(trace.ranks) * rings_s

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
