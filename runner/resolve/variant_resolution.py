"""Resolve a variant of the experiment file into one that can run: fill in defaults and check that it fits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from wanbed.ground.own_code import OWN_FAULTS, EndlessCallError, described
from wanbed.ground.strict_model import InputError, prefixed
from wanbed.runner.companions.prefill.resolution.prefill_resolution import with_service
from wanbed.runner.experiment.compute_spec import TRACE_SCHEDULE
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.quantities import AUTO
from wanbed.runner.experiment.training_spec import MAX_STAGES
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.resolve.boundary_costs import pipelines_to_share
from wanbed.runner.resolve.cell_costs import cell_costs
from wanbed.runner.resolve.checks.all_reduce_check import check_all_reduce, check_segments
from wanbed.runner.resolve.checks.optimizer_waits import waits_for_all
from wanbed.runner.resolve.checks.schedule_check import check_schedule, planned
from wanbed.runner.resolve.checks.trial_extent import check_extent
from wanbed.runner.resolve.jobs.job_hosts import job_topologies
from wanbed.runner.resolve.jobs.variants_at_once import variants_at_once
from wanbed.runner.resolve.pipeline_variant import PipelineVariant, PlannedPlacement
from wanbed.runner.resolve.placement import ConfiguredPlacement, Placement, place_stages
from wanbed.runner.resolve.replicas.replica_resolution import check_matches, check_measured, replica_times, usual_costs
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.stage_costs import StageCosts, stage_costs
from wanbed.runner.resolve.virtual.virtual_check import check_alike, virtual_stages
from wanbed.runner.resolve.virtual.virtual_costs import virtual_stage_costs
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.runner.trainings.local_updates.resolution.diloco_resolution import trained_alone
from wanbed.runner.trainings.local_updates.resolution.swapped_costs import Swapping, swapped_costs
from wanbed.runner.trainings.program.resolution.program_resolution import resolve_program
from wanbed.runner.trainings.torch_baseline.resolution import BaselineVariant
from wanbed.runner.trainings.trace.resolution.trace_resolution import resolve_trace
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.baselines.baseline_config import BASELINE_SCHEDULES, TORCH_DDP, check_baseline_shape
from wanbed.workloads.schedules.planning.cell_plan import CellPlan, options_for
from wanbed.workloads.schedules.planning.planned_schedule import PlannedSchedule
from wanbed.workloads.schedules.registry import schedule_class_path
from wanbed.workloads.schedules.schedule import Schedule, create_schedule, load_schedule
from wanbed.workloads.schedules.virtual.virtual_stages import VirtualStages
from wanbed.workloads.swapping.grouping import Grouping
from wanbed.workloads.synchronization.synchronization import ATOM, DILOCO


@dataclass(frozen=True)
class TrainingCut:
    """The training dimensions of a variant: its own values, otherwise those of the experiment."""

    stages: int
    pipelines: int
    microbatches: int
    memory_bound: int | None
    virtual_stages: int


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


def resolve_variants(
    spec: ExperimentSpec, topology: Topology, directory: Path, choose: Choose, values: Mapping[str, str]
) -> tuple[ResolvedVariant, ...]:
    """Return the variants of a sweep point with these swept values, resolved.

    Raise InputError for a variant that cannot run, and if two schedules train on different numbers of sequences an
    iteration, because they could not be compared. How many a program trains on is not known.
    """
    own = dict(zip([job.name for job in spec.jobs], job_topologies(spec.jobs, topology), strict=True))
    written = [WrittenVariant(spec, position, topology, directory, values) for position in range(len(spec.variants))]
    written = [each if each.job is None else replace(each, topology=own[each.job.name]) for each in written]
    resolved = tuple(with_service(resolve_variant(each, choose), each) for each in written)
    pipelines = {position: each for position, each in enumerate(resolved) if isinstance(each, PipelineVariant)}
    for position, variant in pipelines.items():
        first = next(iter(pipelines.values()))
        if variant.sequences_per_iteration != first.sequences_per_iteration:
            raise InputError(
                f"variants.{position}.training: {variant.pipelines} pipelines of {variant.microbatches} "
                f"microbatches train on {variant.sequences_per_iteration} sequences an iteration, "
                f"{first.name!r} on {first.sequences_per_iteration}: to be compared they need the same"
            )
    check_matches(spec, [variant.placement for variant in resolved])
    return (*resolved, *variants_at_once(spec.jobs, tuple(pipelines.values()))) if spec.jobs else resolved


def resolve_variant(written: WrittenVariant, choose: Choose) -> ResolvedVariant:
    """Return the variant, resolved. Raise InputError if it cannot run."""
    # Refused where nobody can wait.
    waits_for_all(written)
    if written.variant.program is not None:
        return resolve_program(written, written.variant.program)
    if written.variant.schedule == TRACE_SCHEDULE:
        return resolve_trace(written)
    return resolve_pipeline(written, choose)


def resolve_pipeline(written: WrittenVariant, where: Choose | Layout, *, plans: bool = True) -> PipelineVariant:
    """Return the variant of a schedule, resolved. A ``Layout`` replaces its stages, pipelines, DP-cells and placement.

    Without ``plans`` the schedule is neither planned nor checked. Raise InputError if the variant cannot run.
    """
    waits = waits_for_all(written)
    alone = trained_alone(written)
    if alone is not None:
        written = alone.inner
    spec, variant = written.spec, written.variant
    peer = variant.schedule in BASELINE_SCHEDULES
    schedule = None if peer else schedule_class(written)
    whole_replicas = variant.schedule == TORCH_DDP if schedule is None else schedule.whole_replicas
    whole_replicas = whole_replicas or alone is not None
    cut = training_cut(written, whole_replicas=whole_replicas)
    if peer:
        _check_baseline(written, cut)
    virtual = virtual_stages(written, schedule, cut.stages, cut.virtual_stages)
    placed = _placed(written, cut, where, whole_replicas=whole_replicas)
    cut, placement = placed.cut, placed.placement
    check_all_reduce(written, placement)
    of_file, grouping = _costs(written, cut, virtual, None if alone is None else alone.swapping)
    if schedule is not None and not schedule.last_stage_recomputes and grouping is None:
        of_file = of_file.keeping_last()
    replicas = replica_times(written, placement, of_file)
    if virtual is not None:
        check_alike(written, replicas)
    work = of_file if replicas is None else replicas.slowest(of_file)
    check_extent(written, placement, work, cut.microbatches, virtual)
    if isinstance(where, Layout):
        pipelines_per_cell = where.pipelines_per_cell
    else:
        # The planner sizes DP-cells before it knows which GPUs they have.
        pipelines_per_cell = _pipelines_per_cell(written, placement, usual_costs(written, of_file))
    _check_cells(written, placement, pipelines_per_cell)
    kind = BaselineVariant if schedule is None else PipelineVariant
    resolved = kind(
        spec=variant,
        placement=placement,
        schedule=variant.schedule if schedule is None else f"{schedule.__module__}:{schedule.__qualname__}",
        microbatches=cut.microbatches,
        memory_bound=memory_bound(cut, schedule),
        work=work,
        pipelines_per_cell=pipelines_per_cell,
        planned=placed.planned,
        virtual=virtual,
        replicas=replicas,
        seed=spec.seed,
        iterations=None if written.job is None else written.iterations,
        job=None if written.job is None else written.job.name,
        waits_for_all=waits,
    )
    check_segments(written, resolved)
    if schedule is not None and plans:
        resolved = replace(resolved, plan=_checked_plan(written, schedule, resolved))
        if replicas is not None and replicas.source is not None:
            check_measured(replicas, _kinds(resolved, of_file))
    return resolved if alone is None else alone.synchronized(resolved, grouping)


@dataclass(frozen=True)
class _Placed:
    """Where a variant's stages are; its training dimensions; and the planner's search, None if the file says where."""

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
    schedule = create_schedule(variant.schedule, variant.shape, variant.schedule_options(0))
    return {
        stage: [*schedule.kinds(stage), *(["optimizer"] if of_file.optimizer_ns[stage] else [])]
        for stage in range(variant.placement.stages)
    }


def training_cut(written: WrittenVariant, *, whole_replicas: bool) -> TrainingCut:
    """Return the training dimensions of a variant. The default of ``stages`` is as many as the GPUs allow."""
    own, common = written.variant.training, written.spec.training
    pipelines = own.pipelines or common.pipelines
    gpus = [sum(host.gpus for host in datacenter.hosts) for datacenter in written.topology.datacenters]
    room = sum(gpus) // pipelines if whole_replicas else sum(count // pipelines for count in gpus)
    stages = own.stages or common.stages or max(room, 1)
    if stages > MAX_STAGES:
        raise InputError(
            f"training.stages: the hosts have {stages} GPUs, more than the {MAX_STAGES} stages there can be: "
            "give how many to use"
        )
    return TrainingCut(
        stages,
        pipelines,
        own.microbatches or common.microbatches,
        common.memory_bound if own.memory_bound is None else own.memory_bound,
        own.virtual_stages or common.virtual_stages,
    )


def memory_bound(cut: TrainingCut, schedule: type[Schedule] | None) -> int | None:
    """Return how many microbatches a stage may hold at once: as written, otherwise as the schedule has it."""
    if cut.memory_bound is not None or schedule is None:
        return cut.memory_bound
    return schedule.default_memory_bound(cut.stages)


def schedule_class(written: WrittenVariant) -> type[Schedule]:
    """Return the class of a variant's schedule. Raise InputError if none loads."""
    if written.variant.schedule in {ATOM, DILOCO}:
        raise InputError(
            f"{written.field}.schedule: {written.variant.schedule} has no plan: leave the variant out, or plan the "
            "schedule of a replica"
        )
    if written.variant.schedule == TRACE_SCHEDULE:
        raise InputError(f"{written.field}.schedule: a trace has its own layout: there is nothing to plan")
    with prefixed(f"{written.field}."):
        path = schedule_class_path(written.variant.schedule, also=(*BASELINE_SCHEDULES, DILOCO, ATOM))
    try:
        return load_schedule(path)
    except ValueError as refusal:
        raise InputError(f"{written.field}.schedule: {refusal}") from None


def _check_baseline(written: WrittenVariant, cut: TrainingCut) -> None:
    compute, variant, here = written.spec.compute, written.variant, written.field
    if written.job is not None:
        raise InputError(
            f"{here}.schedule: {variant.schedule} is run by torch itself, which does not run beside another job: give "
            "one of wanbed's schedules, or leave jobs out"
        )
    if not compute.backend.torch_schedules:
        raise InputError(f"{here}.schedule: {variant.schedule} is torch's own: give compute: {{kind: torch}}")
    if compute.checkpointing is not False:
        raise InputError(
            f"{here}.schedule: {variant.schedule} keeps its activations, so that the others should too: give "
            "compute.checkpointing: false"
        )
    try:
        check_baseline_shape(variant.schedule, cut.stages, cut.microbatches)
    except ValueError as refusal:
        raise InputError(f"{here}.training.{refusal}") from None
    if cut.memory_bound is not None:
        raise InputError(
            f"{here}.training.memory_bound: {variant.schedule} keeps no bound of {cut.memory_bound} microbatches: "
            "leave memory_bound out of its training and of training"
        )
    if variant.options:
        raise InputError(f"{here}.options: {variant.schedule} takes none: leave options out")
    for name in ("connections", "sharing", "all_reduce", "all_reduce_overlap", "bucket", "overlap"):
        if getattr(variant.transport, name) != TransportSpec.model_fields[name].default:
            raise InputError(f"{here}.transport.{name}: torch's Gloo makes its own connections: leave {name} out")


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
            check_schedule(path, variant.shape, options)
            return None
        plan = planned(schedule, costs, options)
        check_schedule(path, costs.shape, options_for(plan, 0))
    except ValueError as refusal:
        raise InputError(f"{field}: {refusal}") from None
    except (*OWN_FAULTS, EndlessCallError) as fault:
        # A schedule of another package may raise anything.
        raise InputError(f"{field}: {path}: {described(fault, schedule)}") from fault
    return plan
