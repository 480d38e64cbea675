"""Describe a variant of a sweep point with every default filled in: what GPUs compute, and which ranks communicate."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any

from runner.experiment.experiment_spec import Clock
from runner.experiment.transport_spec import TransportSpec
from runner.experiment.variant_spec import VariantSpec
from runner.resolve.connection_count import tcp_settings
from runner.resolve.placement import Pair, Placement, ring_order
from runner.resolve.program.resolved_program import ResolvedProgram
from runner.resolve.stage_costs import StageCosts
from testbed.network.tcp_settings import TcpSettings
from workloads.prefill.service_config import ServiceConfig
from workloads.schedules.pipeline_shape import PipelineShape
from workloads.schedules.planning.cell_plan import CellPlan, options_for
from workloads.trace.replayed_trace import ReplayedTrace


@dataclass(frozen=True)
class PlannedPlacement:
    """The datacenter of each stage, as a search of the planner has chosen them.

    ``simulations`` is how many candidates were simulated. ``cut_off`` is the reason why the search ended early, None if
    it is complete.
    """

    datacenters: tuple[str, ...]
    simulations: int
    cut_off: str | None


@dataclass(frozen=True)
class ResolvedVariant:
    """A variant that can run.

    ``memory_bound`` is how many microbatches a stage may hold at once, None for no limit. ``schedule`` is the path of
    the schedule's class, or the name of a baseline of torch, ``is_baseline``. ``pipelines_per_cell`` is 1 without
    sharing. ``plan`` is the plan of every DP-cell, None unless the schedule is planned. ``clock`` is the
    experiment's. ``service`` is the prefill service beside the training, None for none. ``planned`` is how the planner
    has placed the stages, None if it has not. ``program`` is the user's program that trains in place of a schedule:
    then every process of it is a replica of one stage, of which nothing else is known. ``trace`` is what the ranks
    replay in place of a schedule: then each rank is a stage of one pipeline. Both are None where they follow one.
    """

    spec: VariantSpec
    placement: Placement
    microbatches: int
    memory_bound: int | None
    work: StageCosts
    schedule: str
    is_baseline: bool
    pipelines_per_cell: int
    plan: CellPlan | None
    clock: Clock
    service: ServiceConfig | None = None
    planned: PlannedPlacement | None = None
    program: ResolvedProgram | None = None
    trace: ReplayedTrace | None = None

    @property
    def name(self) -> str:
        """The variant's name, as the user wrote it."""
        return self.spec.name

    @property
    def transport(self) -> TransportSpec:
        """The transport between its ranks."""
        return self.spec.transport

    @property
    def tcp(self) -> TcpSettings:
        """The TCP settings of the hosts for its transport."""
        return tcp_settings(self.transport, self.clock)

    @property
    def pipelines(self) -> int:
        """The number of pipelines, which are the replicas of the model."""
        return len(self.placement.pipelines)

    @property
    def sequences_per_iteration(self) -> int:
        """The sequences trained on in one iteration: microbatches x pipelines, one sequence each."""
        return self.microbatches * self.pipelines

    @cached_property
    def shape(self) -> PipelineShape:
        """The shape of one pipeline, for which the schedule is made."""
        return PipelineShape(self.placement.stages, self.microbatches, self.work.recomputes, self.memory_bound)

    def shares(self, boundary: int) -> bool:
        """Return whether transfers over that boundary use the node pairs of the whole DP-cell."""
        return self.pipelines_per_cell > 1 and self.placement.crosses_wan(boundary)

    def cell(self, pipeline: int) -> range:
        """Return the pipelines of that pipeline's DP-cell."""
        first = pipeline - pipeline % self.pipelines_per_cell
        return range(first, first + self.pipelines_per_cell)

    def cell_mates_connect(self, stage: int) -> bool:
        """Return whether the replicas of a stage in one DP-cell forward each other's transfers."""
        return (stage > 0 and self.shares(stage - 1)) or (stage + 1 < self.placement.stages and self.shares(stage))

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of places whose ranks have connections to each other, lower rank first, each pair once.

        These are neighbour stages, cell mates that forward each other's transfers, and neighbours in a stage's ring of
        replicas. Of a program's processes each is taken to exchange with the next one; in a trace, ranks that send to
        each other and neighbours in a group's ring do.
        """
        placement, places = self.placement, self.placement.places
        if self.trace is not None:
            return tuple(
                (places[one], places[other]) for one, other in sorted(self.trace.pairs | self._trace_ring_pairs)
            )
        found = {(placement.rank(one), placement.rank(other)) for one, other in placement.boundaries}
        for stage in range(placement.stages):
            replicas = placement.replicas(stage)
            if self.cell_mates_connect(stage):
                for first in range(0, self.pipelines, self.pipelines_per_cell):
                    mates = [placement.rank(replicas[pipeline]) for pipeline in self.cell(first)]
                    found |= set(combinations(mates, 2))
            if any(self.work.gradient_bytes) or self.is_baseline or self.program is not None:
                ring = [placement.rank(place) for place in placement.ring(stage)]
                found |= {(min(pair), max(pair)) for pair in pairwise([*ring, *ring[:1]])}
        return tuple((places[one], places[other]) for one, other in sorted(found))

    @cached_property
    def trace_rings(self) -> tuple[tuple[Pair, ...], ...]:
        """Each place with the next one of its ring, for every group of the trace that all-reduces."""
        groups = () if self.trace is None else self.trace.groups
        rings = (ring_order([self.placement.places[rank] for rank in group]) for group in groups)
        return tuple(tuple(zip(ring, [*ring[1:], ring[0]], strict=True)) for ring in rings)

    @property
    def _trace_ring_pairs(self) -> set[tuple[int, int]]:
        ranks = (
            (self.placement.rank(one), self.placement.rank(other)) for ring in self.trace_rings for one, other in ring
        )
        return {(min(pair), max(pair)) for pair in ranks}

    def schedule_options(self, pipeline: int, stage: int | None = None) -> dict[str, Any]:
        """Return the options of that pipeline's schedule.

        With ``stage``, the options are for a rank that needs the order of this stage only.
        """
        if self.plan is None:
            return dict(self.spec.options)
        return options_for(self.plan, pipeline % self.pipelines_per_cell, stage)

    def document(self) -> Mapping[str, Any]:
        """Return what the experiment file leaves open, as resolved, in plain JSON types."""
        places = [[[place.host.name, place.gpu] for place in pipeline] for pipeline in self.placement.pipelines]
        if self.program is not None:
            return {"placement": places}
        return {
            "placement": places,
            "microbatches": self.microbatches,
            "pipelines_per_cell": self.pipelines_per_cell,
            "work": self.work.document(),
            **({} if self.service is None else {"prefill": self.service.document()}),
            **({} if self.trace is None else {"trace": self.trace.digest}),
        }
