"""Describe a variant whose pipelines follow a schedule: what GPUs compute, and which ranks communicate."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any, Self

from wanbed.runner.resolve.dilation import dilated_ns
from wanbed.runner.resolve.placement import Pair, StagePlace, ring_order
from wanbed.runner.resolve.replica_times import ReplicaTimes
from wanbed.runner.resolve.resolved_variant import ResolvedVariant, Transfer
from wanbed.runner.resolve.stage_costs import StageCosts
from wanbed.runner.resolve.stage_memory import HeldBytes
from wanbed.runner.resolve.stage_rings import Ring, StageRings, ring_pairs
from wanbed.workloads.compute.activation_wire import EncodedBoundaries
from wanbed.workloads.compute.replay import ReplayCosts
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.message import MessageKind
from wanbed.workloads.schedules.pipeline_shape import PipelineShape, VirtualStages
from wanbed.workloads.schedules.planning.cell_plan import CellPlan, Turn, options_for
from wanbed.workloads.transport.ring_round import bucket_count, cut_buckets


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
class AmongJobs:
    """The place of a variant among those of other jobs; by default there are none.

    ``job`` is the name of its own job. ``others`` are the variants of other jobs that run at the same time, as they are
    alone, in order of the jobs; ``turn`` is its own position among all of them, and ``alone`` the name of the same
    variant where it runs alone. Of one that does run alone there are no ``others``.
    """

    job: str = ""
    others: "tuple[PipelineVariant, ...]" = ()
    turn: int = 0
    alone: str = ""


@dataclass(frozen=True, kw_only=True)
class PipelineVariant(ResolvedVariant):
    """A variant whose replicas of the model are pipelines of stages.

    ``schedule`` is the path of the schedule's class. ``memory_bound`` is how many microbatches each stage may hold at
    once, one number for all or one for each, None for no limit. ``pipelines_per_cell`` is 1 without sharing. ``plan``
    is the plan of every DP-cell, None unless the schedule is planned. ``planned`` is how the planner has placed the
    stages, None if it has not. ``replicas`` are the compute times of each GPU where replicas of a stage differ or times
    vary; ``work`` then has those of the slowest replica of each stage. None where ``work`` holds for all of them.
    ``virtual`` are the virtual stages, None where stages are not divided. With ``waits_for_all`` optimizer steps wait
    for the gradients of all stages of all pipelines, and for the all-reduce of their norm. ``flushes`` is how many
    times the pipelines fill and drain in an iteration, each time for an equal part of its ``microbatches``; with
    ``sums_flushes`` replicas all-reduce the gradients of each flush, not only the sum of all. ``layers`` has the number
    of each stage, None where they are divided evenly, and ``memory`` the bytes that GPUs hold, None without a limit.
    ``encoded`` are the boundaries whose messages are encoded, None without any: ``work`` then has their sizes on the
    wire, and the times with encoding and decoding, and ``unencoded`` those without. ``residues_bytes`` is what error
    feedback keeps at each part of the model, () without any.
    """

    schedule: str
    microbatches: int
    memory_bound: int | tuple[int, ...] | None
    work: StageCosts
    pipelines_per_cell: int
    plan: CellPlan | None = None
    planned: PlannedPlacement | None = None
    replicas: ReplicaTimes | None = None
    virtual: VirtualStages | None = None
    waits_for_all: bool = False
    flushes: int = 1
    sums_flushes: bool = False
    layers: tuple[int, ...] | None = None
    memory: HeldBytes | None = None
    encoded: EncodedBoundaries | None = None
    unencoded: StageCosts | None = None
    residues_bytes: tuple[int, ...] = ()
    jobs: AmongJobs = AmongJobs()

    def cut(self, model: GptConfig) -> GptConfig:
        """Return the model, divided as the stages are."""
        return model if self.layers is None else replace(model, cut=self.layers)

    @property
    def beside(self) -> "tuple[PipelineVariant, ...]":
        """The variants of other jobs that run at the same time, as they are alone, in order of the jobs."""
        return self.jobs.others

    @property
    def at_once(self) -> "tuple[PipelineVariant, ...]":
        """This variant and those beside it, in order of the jobs."""
        turn = self.jobs.turn
        return (*self.beside[:turn], self, *self.beside[turn:])

    @property
    def sequences_per_iteration(self) -> int:
        """The sequences trained on in one iteration: microbatches x pipelines, one sequence each."""
        return self.microbatches * self.pipelines

    @cached_property
    def shape(self) -> PipelineShape:
        """The shape of one pipeline, for each of whose flushes a schedule is made."""
        return PipelineShape(
            self.placement.stages,
            self.microbatches,
            self.work.recomputes,
            self.memory_bound,
            self.layout.chunks,
            self.flushes,
            self.sums_flushes,
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

    def in_repeat(self, repeat: int) -> Self:
        """Return the variant with what is drawn in that repeat: compute times, and packets in a simulation."""
        beside = tuple(other.in_repeat(repeat) for other in self.beside)
        unchanged = repeat == self.repeat and beside == self.beside
        drawn = self if unchanged else replace(self, repeat=repeat, jobs=replace(self.jobs, others=beside))
        if self.replicas is None or not self.replicas.varies:
            return drawn
        return replace(drawn, replicas=replace(self.replicas, repeat=repeat))

    def without_variation(self) -> Self:
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
        """Tell whether the gradients of replicas are all-reduced in buckets while the last backward computes."""
        return self.transport.sums_in_buckets and self.pipelines > 1

    def buckets_bytes(self, stage: int) -> tuple[int, ...]:
        """Return what a stage's replicas all-reduce one after the other: all gradients at once, or in buckets."""
        size_bytes = self.work.gradient_bytes[stage]
        if not self.overlaps_all_reduce:
            return (size_bytes,)
        return tuple(
            end - start for start, end in cut_buckets(size_bytes, 1, bucket_count(size_bytes, self.transport.bucket))
        )

    def rings(self, stage: int) -> StageRings:
        """Return the rings of a stage's replicas. Collectives of torch are taken to be a ring of all of them."""
        return self._rings[stage]

    @cached_property
    def _rings(self) -> tuple[StageRings, ...]:
        replicas = map(self.placement.replicas, range(self.placement.stages))
        transport = self.transport
        return tuple(
            StageRings.of(
                each,
                hierarchical=transport.is_hierarchical,
                butterfly=transport.is_butterfly,
                chained=transport.is_chain,
            )
            for each in replicas
        )

    @cached_property
    def norm_ring(self) -> Ring:
        """The ring of all ranks over which the gradient norm is all-reduced; () where no optimizer step waits for it.

        It enters each datacenter once.
        """
        places = self.placement.places
        return ring_order(places) if self.waits_for_all and len(places) > 1 else ()

    @property
    def sums_gradients(self) -> bool:
        """Tell whether replicas of a stage have connections over which they sum."""
        return any(self.work.gradient_bytes)

    @property
    def follows_own_schedule(self) -> bool:
        """Tell whether ranks of wanbed follow the schedule: torch runs its own schedules itself."""
        return True

    @property
    def sums_every_iteration(self) -> bool:
        """Tell whether an optimizer step waits for the sum of the gradients of its iteration."""
        return True

    @property
    def sums_an_iteration(self) -> int:
        """The number of all-reduces of a stage's whole gradients in an iteration."""
        return self.flushes if self.sums_flushes else 1

    @property
    def is_star(self) -> bool:
        """Tell whether what replicas sum goes over a star, whose first replica gathers."""
        return False

    def summing_pairs(self, stage: int) -> tuple[Pair, ...]:
        """Return the replicas of a stage that exchange what they sum: neighbours in a ring, or each two."""
        return self.rings(stage).pairs

    def wan_ratio(self, stage: int) -> float:
        """Return how many bytes cross between datacenters for each byte that a replica of a stage sums."""
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
        what a stage's replicas sum; or follow each other in the ring of the gradient norm.
        """
        rank = self.placement.rank
        ranks = [[rank(place) for place in chain] for chain in self.chains]
        found = {pair for chain in ranks for pair in pairwise(chain) if pair[0] != pair[1]}
        for stage in range(self.placement.stages):
            replicas = self.placement.replicas(stage)
            if self.cell_mates_connect(stage):
                for first in range(0, self.pipelines, self.pipelines_per_cell):
                    found |= set(combinations([rank(replicas[pipeline]) for pipeline in self.cell(first)], 2))
            if self.sums_gradients:
                found |= {(rank(one), rank(other)) for one, other in self.summing_pairs(stage)}
        found |= {(rank(one), rank(other)) for one, other in ring_pairs(self.norm_ring)}
        return self._pairs_of(found)

    def transfers(self) -> Iterator[Transfer]:
        """Yield an activation over each boundary, and what replicas sum, between each two that exchange it."""
        for boundary, size_bytes in enumerate(self.work.activation_bytes):
            shared = self.shares(boundary)
            part_bytes = size_bytes // (self.pipelines_per_cell if shared else 1)
            what = "a node pair's share of an activation" if shared else "an activation"
            for chain in self.chains:
                yield Transfer(what, part_bytes, (chain[boundary], chain[boundary + 1]))
        what = "the gradients" if self.sums_every_iteration else "a synchronisation"
        for stage in range(self.placement.stages):
            size_bytes = sum(self.buckets_bytes(stage))
            if not size_bytes:
                continue
            if self.is_star:
                for pair in self.summing_pairs(stage):
                    yield Transfer(f"a replica's part of {what}", size_bytes, pair)
                continue
            rings = self.rings(stage)
            whose = "a ring's segment of" if rings.butterfly is None else "a replica's part of"
            for level, summed_bytes in zip(rings.levels, rings.summed_bytes(size_bytes), strict=True):
                for ring in level:
                    for pair in ring_pairs(ring):
                        yield Transfer(f"{whose} {what}", summed_bytes // rings.cut(len(ring))[0], pair)

    def serial_s(self, transfer_s: Callable[[int], float]) -> float:
        """Return an upper bound of an iteration in seconds, as ``ResolvedVariant.serial_s`` says."""
        work = self.work
        computing_s = (sum(work.forward_ns) + sum(work.backward_ns) + sum(work.recompute_ns)) / 1e9
        crossing_s = sum(2 * transfer_s(size_bytes) for size_bytes in work.activation_bytes)
        summed = [size_bytes for stage in range(work.stages) for size_bytes in self.buckets_bytes(stage)]
        all_reduce_s = sum(2 * self.pipelines * transfer_s(size_bytes) for size_bytes in summed)
        all_reduce_s *= self.sums_an_iteration
        microbatches_s = self.microbatches * (computing_s + crossing_s)
        return self.pipelines * (microbatches_s + sum(work.optimizer_ns) / 1e9 + all_reduce_s)

    def turns(self, kind: MessageKind, boundary: int) -> tuple[Turn, ...]:
        """Return the order of a DP-cell's transfers over a shared boundary in an iteration; () if none is planned.

        That of the plan repeats in each flush.
        """
        if self.plan is None:
            return ()
        planned = self.plan.activation_turns if kind is MessageKind.ACTIVATION else self.plan.gradient_turns
        begun = range(0, self.microbatches, self.microbatches // self.flushes)
        return tuple((mate, before + microbatch) for before in begun for mate, microbatch in planned[boundary])

    def schedule_options(self, pipeline: int, stage: int | None = None) -> dict[str, Any]:
        """Return the options of that pipeline's schedule.

        With ``stage``, the options are for a rank that needs the order of this stage only.
        """
        if self.plan is None:
            return dict(self.spec.options)
        return options_for(self.plan, pipeline % self.pipelines_per_cell, stage)

    def document(self) -> Mapping[str, Any]:
        """Return what the experiment file leaves open, as resolved, in plain JSON types."""
        return {
            "placement": self._places_document(),
            "microbatches": self.microbatches,
            "pipelines_per_cell": self.pipelines_per_cell,
            "work": (self.unencoded or self.work).document(),
            **({} if self.service is None else {"prefill": self.service.document()}),
            **({} if self.replicas is None else {"replicas": self.replicas.document(self.placement.stages)}),
            **({} if self.virtual is None else {"virtual_stages": self.virtual.chunks}),
            **({"optimizer_waits": "all stages"} if self.waits_for_all else {}),
            **({} if self.layers is None else {"layers": list(self.layers)}),
            **({} if self.memory is None else {"memory": {**asdict(self.memory), "parts": self.layout.chunks}}),
            **({} if self.encoded is None else {"activation": self._activation_document(self.encoded)}),
            **({"accumulate": self.flushes} if self.flushes > 1 else {}),
            **({"summed": "every flush"} if self.sums_flushes else {}),
        }

    def _activation_document(self, encoded: EncodedBoundaries) -> Mapping[str, Any]:
        return {
            **encoded.document(),
            "encoded_bytes": [self.work.activation_bytes[each] for each in encoded.boundaries],
        }


def in_pipelines(variant: ResolvedVariant) -> PipelineVariant:
    """Return a variant that follows a schedule, as such. Raise TypeError for a trace and a program, which do not."""
    if not isinstance(variant, PipelineVariant):
        raise TypeError(f"{variant.name}: it follows no schedule")
    return variant
