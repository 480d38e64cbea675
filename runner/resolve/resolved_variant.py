"""Describe one variant of a sweep point with no default left: what each GPU computes, which ranks communicate."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any

from runner.experiment.model import Clock, TransportSpec, VariantSpec
from runner.resolve.connection_count import tcp_settings
from runner.resolve.placement import Pair, Placement
from runner.resolve.stage_costs import StageCosts
from testbed.network.tcp_settings import TcpSettings
from workloads.prefill.service_config import ServiceConfig
from workloads.schedules.pipeline_shape import PipelineShape
from workloads.schedules.planning.cell_plan import CellPlan, options_for


@dataclass(frozen=True)
class ResolvedVariant:
    """A variant that can run.

    ``schedule`` is the path of its class, or the name of one of torch's own (``peer``). ``pipelines_per_cell`` is 1
    where nothing is shared. ``plan`` is what all cells follow, None unless the schedule is made ahead. ``clock`` is
    the experiment's. ``service`` is the prefill that goes on beside it, None for none.
    """

    spec: VariantSpec
    placement: Placement
    microbatches: int
    memory_bound: int | None
    work: StageCosts
    schedule: str
    peer: bool
    pipelines_per_cell: int
    plan: CellPlan | None
    clock: Clock
    service: ServiceConfig | None = None

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
        """The settings that its transport asks of the hosts' TCP."""
        return tcp_settings(self.transport, self.clock)

    @property
    def pipelines(self) -> int:
        """The number of replicas of the model that are trained."""
        return len(self.placement.pipelines)

    @property
    def sequences_per_iteration(self) -> int:
        """The sequences trained on in one iteration: microbatches x pipelines, one sequence each."""
        return self.microbatches * self.pipelines

    @cached_property
    def shape(self) -> PipelineShape:
        """The pipeline that the schedule is made for."""
        return PipelineShape(self.placement.stages, self.microbatches, self.work.recomputes, self.memory_bound)

    def shares(self, boundary: int) -> bool:
        """Return whether the transfers over that boundary use the node pairs of a whole DP-cell."""
        return self.pipelines_per_cell > 1 and self.placement.crosses_wan(boundary)

    def cell(self, pipeline: int) -> range:
        """Return the pipelines of that pipeline's DP-cell."""
        first = pipeline - pipeline % self.pipelines_per_cell
        return range(first, first + self.pipelines_per_cell)

    def mates_talk(self, stage: int) -> bool:
        """Return whether the replicas of a stage in one DP-cell pass on each other's transfers."""
        return (stage > 0 and self.shares(stage - 1)) or (stage + 1 < self.placement.stages and self.shares(stage))

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Every two places whose ranks hold connections to each other, lower rank first, each pair once.

        These are neighbouring stages, the replicas of a stage in one DP-cell where they share, and neighbours in a
        stage's ring of replicas.
        """
        placement = self.placement
        found = {(placement.rank(one), placement.rank(other)) for one, other in placement.boundaries}
        for stage in range(placement.stages):
            replicas = placement.replicas(stage)
            if self.mates_talk(stage):
                for first in range(0, self.pipelines, self.pipelines_per_cell):
                    mates = [placement.rank(replicas[pipeline]) for pipeline in self.cell(first)]
                    found |= set(combinations(mates, 2))
            if any(self.work.gradient_bytes) or self.peer:
                ring = [placement.rank(place) for place in placement.ring(stage)]
                found |= {(min(pair), max(pair)) for pair in pairwise([*ring, *ring[:1]])}
        places = placement.places
        return tuple((places[one], places[other]) for one, other in sorted(found))

    def schedule_options(self, pipeline: int, stage: int | None = None) -> dict[str, Any]:
        """Return the options of that pipeline's schedule; with ``stage``, for a rank that asks for no other stage."""
        if self.plan is None:
            return dict(self.spec.options)
        return options_for(self.plan, pipeline % self.pipelines_per_cell, stage)

    def document(self) -> Mapping[str, Any]:
        """Return what runs, beyond what the experiment's file says, in plain JSON types."""
        return {
            "placement": [
                [[place.host.name, place.gpu] for place in pipeline] for pipeline in self.placement.pipelines
            ],
            "microbatches": self.microbatches,
            "pipelines_per_cell": self.pipelines_per_cell,
            "work": self.work.document(),
            **({} if self.service is None else {"prefill": self.service.document()}),
        }
