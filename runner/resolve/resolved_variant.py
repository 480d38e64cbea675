"""Describe a variant of a sweep point with every default filled in: what GPUs compute, and which ranks communicate."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any

from wanbed.runner.companions.background.resolution.flow import BackgroundFlow
from wanbed.runner.companions.faults.resolution.planned_fault import PlannedFault
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.experiment.variant_spec import VariantSpec
from wanbed.runner.resolve.connection_count import tcp_settings
from wanbed.runner.resolve.dilation import dilated_ns
from wanbed.runner.resolve.placement import Pair, Placement, StagePlace, ring_order
from wanbed.runner.resolve.replicas.replica_times import ReplicaTimes
from wanbed.runner.resolve.stage_costs import StageCosts
from wanbed.runner.resolve.stage_rings import Ring, StageRings, ring_pairs
from wanbed.runner.trainings.program.resolution.resolved_program import ResolvedProgram
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.workloads.compute.replay import ReplayCosts
from wanbed.workloads.prefill.service_config import ServiceConfig
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning.cell_plan import CellPlan, options_for
from wanbed.workloads.schedules.virtual.virtual_stages import VirtualStages
from wanbed.workloads.swapping.grouping import Grouping
from wanbed.workloads.synchronization.fragments import fragments_bytes
from wanbed.workloads.synchronization.synchronization import Synchronization, Topology
from wanbed.workloads.trace.replayed_trace import ReplayedTrace
from wanbed.workloads.transport.ring.buckets import bucket_count, cut_buckets


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
    sharing. ``plan`` is the plan of every DP-cell, None unless the schedule is planned. ``service`` is the prefill
    service beside the training, None for none. ``planned`` is how the planner has placed the stages, None if it has
    not. ``program`` is the user's program that trains in place of a schedule: then every process of it is a replica of
    one stage, of which nothing else is known. ``trace`` is what the ranks replay in place of a schedule: then each rank
    is a stage of one pipeline. Both are None where they follow one. ``replicas`` are the compute times of each GPU
    where replicas of a stage differ or times vary; ``work`` then has those of the slowest replica of each stage. None
    where ``work`` holds for all of them.
    ``virtual`` are the virtual stages, None where stages are not divided. ``seed`` and ``repeat`` determine what a
    simulation draws for single packets. ``iterations`` replaces the experiment's,
    None where it does not. ``beside`` are the variants of other jobs that run at the same time, as they are alone, in
    order of the jobs; ``job`` is the own one's name, None without jobs, and ``turn`` its position among all of them,
    and ``alone`` what it is called where it runs alone, "" where it does. ``synchronization`` says when replicas
    exchange pseudo-gradients, None where they sum gradients in every iteration. With it, ``spec`` and ``schedule`` are
    those within each replica, no gradient is all-reduced, and ``parameters`` are those of each stage. ``background`` is
    the traffic that shares the WAN with it, and trains nothing. ``grouping`` are the groups of layers that each replica
    swaps through its GPU, None where it swaps none; the times in ``work`` then include the waits for them. ``failures``
    are the ranks that a simulation lets fail. With ``waits_for_all`` optimizer steps wait for the gradients of all
    stages of all pipelines, and for the all-reduce of their norm.
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
    service: ServiceConfig | None = None
    planned: PlannedPlacement | None = None
    program: ResolvedProgram | None = None
    trace: ReplayedTrace | None = None
    replicas: ReplicaTimes | None = None
    virtual: VirtualStages | None = None
    seed: int = 0
    repeat: int = 0
    iterations: int | None = None
    beside: "tuple[ResolvedVariant, ...]" = ()
    job: str | None = None
    turn: int = 0
    alone: str = ""
    synchronization: Synchronization | None = None
    parameters: tuple[int, ...] = ()
    background: tuple[BackgroundFlow, ...] = ()
    grouping: Grouping | None = None
    failures: tuple[PlannedFault, ...] = ()
    waits_for_all: bool = False

    @property
    def name(self) -> str:
        """The variant's name, as the user wrote it."""
        return self.spec.name

    @property
    def at_once(self) -> "tuple[ResolvedVariant, ...]":
        """This variant and those beside it, in order of the jobs."""
        return (*self.beside[: self.turn], self, *self.beside[self.turn :])

    @property
    def transport(self) -> TransportSpec:
        """The transport between its ranks."""
        return self.spec.transport

    @property
    def tcp(self) -> TcpSettings:
        """The TCP settings of the hosts for its transport."""
        return tcp_settings(self.transport)

    @property
    def sends_block(self) -> bool:
        """Whether a GPU that sends starts nothing further until its message has left."""
        return not self.transport.overlap

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
        return PipelineShape(
            self.placement.stages, self.microbatches, self.work.recomputes, self.memory_bound, self.layout.chunks
        )

    @cached_property
    def layout(self) -> VirtualStages:
        """The virtual stages. A stage that is not divided is its own."""
        return self.virtual or VirtualStages(self.placement.stages)

    @cached_property
    def chains(self) -> tuple[tuple[StagePlace, ...], ...]:
        """The place of each virtual stage of each pipeline, in the order of the model.

        Boundary i lies between places i and i + 1. Nothing is sent over it where they are the same.
        """
        return tuple(self.placement.chain(pipeline, self.layout) for pipeline in range(self.pipelines))

    @property
    def varies(self) -> bool:
        """Return whether compute times are drawn, so that repeats differ."""
        return self.replicas is not None and self.replicas.varies

    def in_repeat(self, repeat: int) -> "ResolvedVariant":
        """Return the variant with what is drawn in that repeat: compute times, and packets in a simulation."""
        beside = tuple(other.in_repeat(repeat) for other in self.beside)
        unchanged = repeat == self.repeat and beside == self.beside
        drawn = self if unchanged else replace(self, repeat=repeat, beside=beside)
        if self.replicas is None or not self.replicas.varies:
            return drawn
        return replace(drawn, replicas=replace(self.replicas, repeat=repeat))

    def without_variation(self) -> "ResolvedVariant":
        """Return the variant with the usual compute times, of which none is drawn."""
        return self if self.replicas is None else replace(self, replicas=self.replicas.without_variation())

    def costs(self, pipeline: int, stage: int, dilation: float = 1.0) -> ReplayCosts:
        """Return the costs of a stage's GPU in that pipeline, in dilated time."""
        costs = self.work.replay(stage)
        if self.replicas is not None:
            rank = pipeline * self.placement.stages + stage
            variation = self.replicas.variation(rank, pipeline, stage, self.microbatches, dilation)
            costs = replace(costs, durations=self.replicas.durations[rank], variation=variation)
        if dilation == 1:
            return costs
        return replace(costs, durations=costs.durations.changed(lambda time_ns: dilated_ns(time_ns, dilation)))

    def chunk_costs(self, stage: int, dilation: float = 1.0) -> tuple[ReplayCosts, ...]:
        """Return the costs of each virtual stage that a stage holds, in dilated time; () if it is not divided."""
        parts = self.work.virtual
        if parts is None:
            return ()
        costs = [parts.replay(self.layout.number(stage, chunk)) for chunk in range(self.layout.chunks)]
        return tuple(
            replace(each, durations=each.durations.changed(lambda time_ns: dilated_ns(time_ns, dilation)))
            for each in costs
        )

    @property
    def overlaps_all_reduce(self) -> bool:
        """Whether the gradients of replicas are all-reduced in buckets while the last backward computes."""
        own = self.is_baseline or self.program is not None or self.trace is not None
        own = own or self.synchronization is not None
        return self.transport.sums_in_buckets and self.pipelines > 1 and not own

    def buckets_bytes(self, stage: int) -> tuple[int, ...]:
        """Return what a stage's replicas all-reduce one after the other: all gradients at once, or in buckets.

        Of replicas that synchronise, the largest fragment.
        """
        if self.synchronization is not None:
            return (max(self.fragments_bytes(stage)),)
        size_bytes = self.work.gradient_bytes[stage]
        if not self.overlaps_all_reduce:
            return (size_bytes,)
        return tuple(
            end - start for start, end in cut_buckets(size_bytes, 1, bucket_count(size_bytes, self.transport.bucket))
        )

    def fragments_bytes(self, stage: int) -> tuple[int, ...]:
        """Return the size on the wire of each fragment of a stage, () where replicas do not synchronise."""
        each = self.synchronization
        return () if each is None else fragments_bytes(self.parameters[stage], each.fragments, each.wire)

    def state_bytes(self, stage: int) -> int:
        """Return the size of what a replica begins with that comes back: global parameters and momentum, in fp32."""
        return 2 * 4 * self.parameters[stage]

    @property
    def is_star(self) -> bool:
        """Whether replicas synchronise over a star, whose first replica gathers."""
        return self.synchronization is not None and self.synchronization.topology is Topology.STAR

    def rings(self, stage: int) -> StageRings:
        """Return the rings of a stage's replicas. Collectives of torch are taken to be a ring of all of them."""
        return self._rings[stage]

    @cached_property
    def _rings(self) -> tuple[StageRings, ...]:
        replicas = map(self.placement.replicas, range(self.placement.stages))
        return tuple(StageRings.of(each, hierarchical=self.transport.is_hierarchical) for each in replicas)

    @cached_property
    def norm_ring(self) -> Ring:
        """The ring of all ranks over which the gradient norm is all-reduced; () where no optimizer step waits for it.

        It enters each datacenter once.
        """
        places = self.placement.places
        return ring_order(places) if self.waits_for_all and len(places) > 1 else ()

    @property
    def goes_on_without(self) -> frozenset[int]:
        """The ranks that the others can lose and train on: those of a star with a quorum which do not gather.

        Of replicas with several stages there are none: a rank's neighbours in its pipeline cannot lose it.
        """
        if self.synchronization is None or self.synchronization.quorum is None or self.placement.stages > 1:
            return frozenset()
        return frozenset(range(1, self.pipelines))

    def summing_pairs(self, stage: int) -> tuple[Pair, ...]:
        """Return the replicas of a stage that exchange what they sum: neighbours in a ring, or the star's."""
        if not self.is_star:
            return self.rings(stage).pairs
        first, *others = self.placement.replicas(stage)
        return tuple((first, other) for other in others)

    def wan_ratio(self, stage: int) -> float:
        """Return how many bytes cross between datacenters for each byte that a replica of a stage sums.

        Over a star every replica's part makes its way to the first one, and the sum makes it back.
        """
        if self.is_star:
            return 2.0 * sum(one.datacenter != other.datacenter for one, other in self.summing_pairs(stage))
        return self.rings(stage).wan_ratio

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

        These hold neighbour stages, or virtual stages; are cell mates that forward each other's transfers; exchange
        what a stage's replicas sum; or follow each other in the ring of the gradient norm. Of a program's processes
        each is taken to exchange with the next one; in a trace, ranks that send to each other and neighbours in a
        group's ring do.
        """
        placement, places = self.placement, self.placement.places
        if self.trace is not None:
            return tuple(
                (places[one], places[other]) for one, other in sorted(self.trace.pairs | self._trace_ring_pairs)
            )
        ranks = [[placement.rank(place) for place in chain] for chain in self.chains]
        found = {(min(pair), max(pair)) for chain in ranks for pair in pairwise(chain) if pair[0] != pair[1]}
        for stage in range(placement.stages):
            replicas = placement.replicas(stage)
            if self.cell_mates_connect(stage):
                for first in range(0, self.pipelines, self.pipelines_per_cell):
                    mates = [placement.rank(replicas[pipeline]) for pipeline in self.cell(first)]
                    found |= set(combinations(mates, 2))
            if any(self.work.gradient_bytes) or self.is_baseline or self.program is not None:
                summing = [(placement.rank(one), placement.rank(other)) for one, other in self.summing_pairs(stage)]
                found |= {(min(pair), max(pair)) for pair in summing}
        norm = [(placement.rank(one), placement.rank(other)) for one, other in ring_pairs(self.norm_ring)]
        found |= {(min(pair), max(pair)) for pair in norm}
        return tuple((places[one], places[other]) for one, other in sorted(found))

    @cached_property
    def trace_rings(self) -> tuple[tuple[Pair, ...], ...]:
        """Each place with the next one of its ring, for every group of the trace that has collectives."""
        groups = () if self.trace is None else self.trace.groups
        rings = (ring_order([self.placement.places[rank] for rank in group]) for group in groups)
        return tuple(ring_pairs(ring) for ring in rings)

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
            **({} if self.replicas is None else {"replicas": self.replicas.document(self.placement.stages)}),
            **({} if self.virtual is None else {"virtual_stages": self.virtual.chunks}),
            **({"optimizer_waits": "all stages"} if self.waits_for_all else {}),
            **({} if self.grouping is None else {"swapping": self.grouping.document()}),
            **({} if self.synchronization is None else {"synchronization": self._synchronization_document()}),
        }

    def _synchronization_document(self) -> dict[str, Any]:
        assert self.synchronization is not None
        stages = range(self.placement.stages)
        return {
            "schedule": self.schedule,
            **asdict(self.synchronization),
            "parameters": list(self.parameters),
            "fragments_bytes": [list(self.fragments_bytes(stage)) for stage in stages],
        }
