"""Resolve a variant that follows a schedule: fill in its defaults, plan it, and check that it fits."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from wanbed.ground.errors import InputError, prefixed
from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.ground.own_code import OWN_FAULTS, EndlessCallError, described
from wanbed.runner.experiment.quantities import AUTO
from wanbed.runner.resolve.accumulation_check import check_accumulation, summed
from wanbed.runner.resolve.all_reduce_check import check_all_reduce, check_segments
from wanbed.runner.resolve.cell_costs import cell_costs, pipelines_to_share
from wanbed.runner.resolve.encoded_activations import (
    PlacedEncoding,
    activation_encoding,
    check_activation,
    check_crossing,
    placed_encoding,
    residues,
)
from wanbed.runner.resolve.held_check import check_held
from wanbed.runner.resolve.layer_cut import cut_layers, layers_asked, with_layers
from wanbed.runner.resolve.pipeline_variant import AmongJobs, PipelineVariant, PlannedPlacement
from wanbed.runner.resolve.placement import ConfiguredPlacement, Placement, place_stages
from wanbed.runner.resolve.receive_check import check_receive, check_rendezvous
from wanbed.runner.resolve.replica_times import ReplicaTimes, check_measured, replica_times, usual_costs
from wanbed.runner.resolve.schedule_check import check_schedule, planned
from wanbed.runner.resolve.stage_costs import StageCosts, activation_bytes, stage_costs, virtual_stage_costs
from wanbed.runner.resolve.stage_memory import HeldBytes, held_microbatches, stage_memory
from wanbed.runner.resolve.trial_extent import check_extent
from wanbed.runner.resolve.written_variant import (
    TrainingCut,
    WrittenVariant,
    choose_schedule,
    training_cut,
)
from wanbed.runner.trainings.local_updates.resolution import Swapping, swapped_costs, trained_alone
from wanbed.runner.trainings.registry import TRACE, TRAININGS
from wanbed.runner.trainings.torch_baseline.resolution import BaselineVariant, check_baseline
from wanbed.workloads.baselines.baseline_config import BASELINE_SCHEDULES
from wanbed.workloads.grouping import Grouping
from wanbed.workloads.schedules.pipeline_shape import VirtualStages
from wanbed.workloads.schedules.planning.cell_plan import CellPlan, options_for
from wanbed.workloads.schedules.planning.planned_schedule import PlannedSchedule
from wanbed.workloads.schedules.schedule import Schedule, create_schedule
from wanbed.workloads.synchronization.synchronization import ATOM, DILOCO


@dataclass(frozen=True)
class Layout:
    """A layout that the planner proposes: pipelines, pipelines per DP-cell, and the datacenter of each stage."""

    stages: int
    pipelines: int
    pipelines_per_cell: int
    placement: tuple[str, ...]


Choose = Callable[[WrittenVariant, int], PlannedPlacement]
"""A function that places the stages of a variant with ``placement: auto``.

Its second argument is the number of pipelines.
"""


def resolve_pipeline(written: WrittenVariant, where: Choose | Layout, *, plans: bool = True) -> PipelineVariant:
    """Return the variant of a schedule, resolved. A ``Layout`` replaces its stages, pipelines, DP-cells and placement.

    Without ``plans`` the schedule is neither planned nor checked. Raise InputError if the variant cannot run.
    """
    waits = waits_for_all(written)
    alone = trained_alone(written)
    if alone is not None:
        written = alone.inner
    spec, variant = written.spec, written.variant
    choice = choose_schedule(written)
    schedule, whole_replicas = choice.kind, choice.whole_replicas or alone is not None
    check_receive(written, schedule)
    check_held(written, schedule)
    check_activation(written, schedule)
    cut = training_cut(written, whole_replicas=whole_replicas)
    check_accumulation(written, cut, schedule, alone)
    if schedule is None:
        check_baseline(written, cut)
    virtual = _virtual_stages(written, schedule, cut.stages, cut.virtual_stages)
    placed = _placed(written, cut, where, whole_replicas=whole_replicas)
    cut, placement = placed.cut, placed.placement
    check_all_reduce(written, placement)
    encoding = placed_encoding(activation_encoding(written), placement, virtual or VirtualStages(cut.stages))
    if not isinstance(where, Layout):
        check_crossing(written, encoding)
    layers = _cut_layers(written, cut, placement, virtual, encoding, keeps_last=choice.keeps_last)
    written = with_layers(written, layers or "even")
    of_file, grouping = _costs(written, cut, virtual, None if alone is None else alone.swapping)
    if choice.keeps_last and grouping is None:
        of_file = of_file.keeping_last()
    unencoded, residues_bytes = of_file, residues(encoding, of_file, cut.microbatches)
    of_file = encoding.costs(of_file) if encoding is not None else of_file
    replicas = replica_times(written, placement, of_file)
    if virtual is not None:
        _check_alike(written, replicas)
    work = of_file if replicas is None else replicas.slowest(of_file)
    sums_flushes = cut.flushes > 1 and len(placement.pipelines) > 1 and summed(written) == "every flush"
    check_extent(written, placement, work, cut.microbatches, virtual, sums=cut.flushes if sums_flushes else 1)
    if isinstance(where, Layout):
        pipelines_per_cell = where.pipelines_per_cell
    else:
        # The planner sizes DP-cells before it knows which GPUs they have.
        pipelines_per_cell = _pipelines_per_cell(written, placement, usual_costs(written, of_file))
    _check_cells(written, placement, pipelines_per_cell)
    memory = stage_memory(
        written,
        cut,
        schedule,
        recomputes=work.recomputes,
        virtual=virtual,
        keeps_sums=sums_flushes,
        residues_bytes=residues_bytes,
    )
    limit = cut.memory_bytes
    kind = BaselineVariant if schedule is None else PipelineVariant
    resolved = kind(
        spec=variant,
        placement=placement,
        schedule=choice.path,
        microbatches=cut.microbatches,
        memory_bound=held_microbatches(written, cut, schedule, memory),
        work=work,
        pipelines_per_cell=pipelines_per_cell,
        planned=placed.planned,
        virtual=virtual,
        replicas=replicas,
        seed=spec.seed,
        iterations=None if written.job is None else written.iterations,
        jobs=AmongJobs("" if written.job is None else written.job.name),
        waits_for_all=waits,
        flushes=cut.flushes,
        sums_flushes=sums_flushes,
        layers=layers,
        encoded=None if encoding is None else encoding.on_wire,
        unencoded=None if encoding is None else _slowest(written, placement, unencoded),
        residues_bytes=residues_bytes,
        memory=None if memory is None or limit is None else HeldBytes.of(memory, cut.stages, limit),
    )
    check_segments(written, resolved)
    if schedule is not None and plans:
        resolved = replace(resolved, plan=_checked_plan(written, schedule, resolved))
        if replicas is not None and replicas.source is not None:
            check_measured(replicas.source, replicas.unmeasured, _kinds(resolved, of_file))
    return resolved if alone is None else alone.synchronized(resolved, grouping)


def _virtual_stages(
    written: WrittenVariant, schedule: type[Schedule] | None, stages: int, chunks: int
) -> VirtualStages | None:
    """Return the virtual stages of a variant, None if its stages are not divided.

    ``schedule`` is None for a baseline of torch. Raise InputError for a schedule without virtual stages, and for what
    is not combined with them.
    """
    if chunks == 1:
        return None
    variant, here = written.variant, written.field
    if schedule is None or schedule.virtual_layout is None:
        raise InputError(
            f"{here}.training.virtual_stages: {chunks}, and {variant.schedule} has none: give 1, or schedule "
            "interleaved-1f1b or zb-v"
        )
    check_exclusions(
        Exclusion(
            "transport.sharing",
            "what virtual stages send goes over the connections of its own two hosts",
            when=variant.transport.sharing != "none",
        ),
        Exclusion(
            "placement",
            "the planner does not know virtual stages",
            "name the datacenter of each stage",
            when=variant.placement == AUTO,
        ),
        Exclusion(
            "prefill",
            "the bubbles between virtual stages are not planned",
            "give prefill: none and no pool",
            when=written.spec.prefill is not None and (variant.prefill != "none" or variant.pool > 0),
            leave="",
        ),
        where=f"{here}.",
    )
    return VirtualStages(stages, chunks, schedule.virtual_layout)


def _cut_layers(
    written: WrittenVariant,
    cut: TrainingCut,
    placement: Placement,
    virtual: VirtualStages | None,
    encoding: PlacedEncoding | None,
    *,
    keeps_last: bool,
) -> tuple[int, ...] | None:
    """Return the number of layers of each stage, None where they are divided evenly."""
    if virtual is not None and layers_asked(written) != "even":
        raise InputError(
            f"{written.field}.training.virtual_stages: {virtual.chunks} parts a stage have the same number of layers "
            "each: leave training.layers out, or give 1"
        )

    def slowest(costs: StageCosts) -> StageCosts:
        if encoding is not None:
            costs = encoding.costs(replace(costs, activation_bytes=activation_bytes(written.spec, cut.stages)))
        return _slowest(written, placement, costs)

    return cut_layers(written, cut.stages, slowest, keeps_last=keeps_last, memory_bytes=cut.memory_bytes)


def _slowest(written: WrittenVariant, placement: Placement, costs: StageCosts) -> StageCosts:
    """Return the costs with the times of the slowest replica of each stage."""
    replicas = replica_times(written, placement, costs)
    return costs if replicas is None else replicas.slowest(costs)


def _check_alike(written: WrittenVariant, replicas: ReplicaTimes | None) -> None:
    """Raise InputError for compute times that differ between GPUs or iterations: those of parts are not known."""
    if replicas is not None:
        raise InputError(
            f"{written.field}.training.virtual_stages: the parts of a stage whose compute times differ between GPUs or "
            "vary (compute.slower, jitter, resample, a measured run) are not known: leave those out, or give 1"
        )


def waits_for_all(written: WrittenVariant) -> bool:
    """Return whether optimizer steps wait for the gradients of all stages. Raise InputError where they cannot."""
    own = written.variant.training.optimizer_waits
    if (own or written.spec.training.optimizer_waits) == "own":
        return False
    reason = _reason(written)
    if reason is not None:
        field = "training.optimizer_waits" if own is None else f"{written.field}.training.optimizer_waits"
        remedy = f"give {written.field}.training.optimizer_waits: own" if own is None else "give own"
        raise InputError(f"{field}: all stages, but {reason}: {remedy}")
    return True


def _reason(written: WrittenVariant) -> str | None:
    """Return why the optimizer steps of a variant do not wait for all stages, None if they can."""
    variant = written.variant
    if variant.program is not None:
        return f"{variant.name} runs a program, which steps its optimizer itself"
    if variant.schedule == TRACE:
        return f"{variant.name} replays a trace, which has its own order of optimizer steps"
    if variant.schedule in TRAININGS:
        return f"{variant.schedule} has no stages, whose gradient norm it would be"
    if variant.schedule in {DILOCO, ATOM}:
        return f"the replicas of {variant.schedule} train alone, and exchange no gradient norm"
    if variant.schedule in BASELINE_SCHEDULES:
        return f"{variant.schedule} is torch's own, which steps its optimizer itself"
    return None


@dataclass(frozen=True)
class _Placed:
    """The places of a variant's stages, its training dimensions, and the planner's search if it has chosen them."""

    placement: Placement
    cut: TrainingCut
    planned: PlannedPlacement | None = None


def _placed(written: WrittenVariant, cut: TrainingCut, where: Choose | Layout, *, whole_replicas: bool) -> _Placed:
    configured: ConfiguredPlacement | None = written.variant.placement
    planned: PlannedPlacement | None = None
    if isinstance(where, Layout):
        cut, configured = replace(cut, stages=where.stages, pipelines=where.pipelines), where.placement
    elif configured == AUTO:
        planned = where(written, cut.pipelines)
        configured = planned.datacenters
    with prefixed("" if configured is None else f"{written.field}."):
        placement = place_stages(written.topology, cut.stages, cut.pipelines, configured, whole_replicas=whole_replicas)
    return _Placed(placement, cut, planned)


def _costs(
    written: WrittenVariant, cut: TrainingCut, virtual: VirtualStages | None, swapping: Swapping | None
) -> tuple[StageCosts, Grouping | None]:
    """Return the costs of each stage by the file, and the groups of layers where replicas swap them."""
    if swapping is not None:
        swapped = swapped_costs(written, swapping, cut.microbatches, cut.pipelines)
        return swapped.costs, swapped.grouping
    if virtual is None:
        return stage_costs(written.spec, cut.stages, cut.pipelines, written.directory), None
    return virtual_stage_costs(written.spec, virtual, cut.pipelines, written.directory), None


def _kinds(variant: PipelineVariant, of_file: StageCosts) -> dict[int, list[str]]:
    """Return the kinds of action that take time at each stage."""
    schedule = create_schedule(variant.schedule, variant.shape.flush, variant.schedule_options(0))
    return {
        stage: [*schedule.kinds(stage), *(["optimizer"] if of_file.optimizer_ns[stage] else [])]
        for stage in range(variant.placement.stages)
    }


def _pipelines_per_cell(written: WrittenVariant, placement: Placement, work: StageCosts) -> int:
    transport = written.variant.transport
    if transport.sharing == "none":
        return 1
    configured, pipelines = transport.pipelines_per_cell, len(placement.pipelines)
    if configured == "auto":
        return pipelines_to_share(written.topology, placement, transport, work)
    if pipelines % configured:
        raise InputError(
            f"{written.field}.transport.pipelines_per_cell: DP-cells of {configured} do not divide {pipelines} "
            "pipelines: give a divisor"
        )
    return configured


def _check_cells(written: WrittenVariant, placement: Placement, pipelines_per_cell: int) -> None:
    """Raise InputError if cell mates that share a boundary are in several datacenters.

    They forward each other's transfers, which must not cross the WAN.
    """
    for boundary in range(placement.stages - 1 if pipelines_per_cell > 1 else 0):
        if not placement.crosses_wan(boundary):
            continue
        for stage in (boundary, boundary + 1):
            replicas = placement.replicas(stage)
            for first in range(0, len(replicas), pipelines_per_cell):
                homes = {place.datacenter for place in replicas[first : first + pipelines_per_cell]}
                if len(homes) > 1:
                    raise InputError(
                        f"{written.field}.transport.sharing: the replicas of stage {stage} in one DP-cell are in "
                        f"{' and '.join(sorted(homes))}: place them in one datacenter, or give sharing: none"
                    )


def _checked_plan(written: WrittenVariant, schedule: type[Schedule], variant: PipelineVariant) -> CellPlan | None:
    """Return the plan of a planned schedule, None for any other. Raise InputError if the schedule cannot be made."""
    path, field = f"{schedule.__module__}:{schedule.__qualname__}", f"{written.field}.schedule"
    options = written.variant.options
    costs = cell_costs(written.topology, variant) if issubclass(schedule, PlannedSchedule) else None
    try:
        if costs is None or not issubclass(schedule, PlannedSchedule):
            check_schedule(path, variant.shape.flush, options)
            check_rendezvous(create_schedule(path, variant.shape.flush, options), variant.transport)
            return None
        plan = planned(schedule, costs, options)
        check_schedule(path, costs.shape, options_for(plan, 0))
    except ValueError as refusal:
        # A bound in the message may be that of bytes.
        of_bytes = isinstance(variant.memory_bound, tuple) and "memory_bound" in str(refusal)
        raise InputError(f"{field}: {refusal}{', or give more training.memory' if of_bytes else ''}") from None
    except (*OWN_FAULTS, EndlessCallError) as fault:
        # A schedule of another package may raise anything.
        raise InputError(f"{field}: {path}: {described(fault, schedule)}") from fault
    return plan
