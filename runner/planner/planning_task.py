"""Choose what of an experiment is planned, convert it to a task of the planner, and the best candidate to places."""

import json
from collections.abc import Iterable, Iterator

from wanbed.ground.strict_model import InputError, prefixed
from wanbed.results.text import list_text
from wanbed.runner.experiment.sweep import SweepPointSpec
from wanbed.runner.planner.candidate import Candidate
from wanbed.runner.planner.planning import PlanningTask, planned_placement
from wanbed.runner.planner.pricing import PricedIterations
from wanbed.runner.planner.search_space import most_pipelines
from wanbed.runner.resolve.engine_limits import check_packets_arrive
from wanbed.runner.resolve.pipeline_resolution import Layout, resolve_pipeline
from wanbed.runner.resolve.pipeline_variant import PlannedPlacement
from wanbed.runner.resolve.replica_times import least_costs, usual_costs
from wanbed.runner.resolve.stage_costs import stage_costs
from wanbed.runner.resolve.written_variant import WrittenVariant, memory_bound, schedule_class, training_cut
from wanbed.workloads.baselines.baseline_config import BASELINE_SCHEDULES


def planned_places(written: WrittenVariant, pipelines: int) -> PlannedPlacement:
    """Return the datacenter of each stage in the best candidate for a variant, and how it was found."""
    return planned_placement(planning_task(written, pipelines=pipelines))


def planning_task(written: WrittenVariant, *, pipelines: int | None) -> PlanningTask:
    """Return the planner's task for a variant with this number of ``pipelines``, None for any number.

    Raises InputError if the planner cannot place it.
    """
    spec, topology, variant = written.spec, written.topology, written.variant
    if variant.program is not None:
        raise InputError(f"{written.field}.program: a program runs as it is and has no plan: name another --variant")
    if variant.schedule in BASELINE_SCHEDULES:
        raise InputError(
            f"{written.field}.schedule: {variant.schedule} is a baseline, which is not simulated: it has no plan"
        )
    schedule = schedule_class(written)
    if schedule.whole_replicas:
        raise InputError(
            f"{written.field}.schedule: {variant.schedule} places whole replicas, and stages are planned: take a "
            "schedule that cuts the model into stages"
        )
    cut = training_cut(written, whole_replicas=schedule.whole_replicas)
    if cut.virtual_stages > 1:
        raise InputError(
            f"{written.field}.training.virtual_stages: {cut.virtual_stages}: the planner does not know virtual stages: "
            "take a schedule without them, and virtual_stages: 1"
        )
    most = pipelines or max(most_pipelines(topology, cut.stages), 1)
    work = stage_costs(spec, cut.stages, most, written.directory)
    if not schedule.last_stage_recomputes:
        work = work.keeping_last()
    return PlanningTask(
        topology,
        cut.stages,
        pipelines,
        cut.microbatches,
        memory_bound(cut, schedule),
        None if spec.model is None else spec.model.context,
        variant.transport,
        schedule,
        json.dumps(variant.options, sort_keys=True),
        usual_costs(written, work),
        least_costs(written, work),
        spec.compute.slower,
        PricedIterations.of(spec.training.iterations, spec.training.warmup),
        # What is drawn would make the price of a candidate a matter of luck.
        lambda candidate: resolve_pipeline(written, _layout(candidate)).without_variation(),
        lambda candidate: resolve_pipeline(written, _layout(candidate), plans=False),
    )


def _layout(candidate: Candidate) -> Layout:
    return Layout(candidate.stages, candidate.pipelines, candidate.pipelines_per_cell, candidate.placement)


def planned_points(points: Iterable[SweepPointSpec]) -> Iterator[SweepPointSpec]:
    """Yield every sweep point. Its stages are not placed, so that its ``training.pipelines`` need not fit.

    Raise InputError for a network over which nothing arrives.
    """
    for point in points:
        with prefixed(f"{point.source}: "):
            check_packets_arrive(point.spec.topology, point.topology)
        yield point


def position_to_plan(point: SweepPointSpec, name: str | None) -> int:
    """Return the position of the variant of that name; by default of the first with schedule atlas, or the first.

    Raise InputError if there is none.
    """
    variants = point.spec.variants
    if name is None:
        return next((position for position, variant in enumerate(variants) if variant.schedule == "atlas"), 0)
    for position, variant in enumerate(variants):
        if variant.name == name:
            return position
    raise InputError(f"--variant {name}: {point.source} has {list_text([variant.name for variant in variants])}")
