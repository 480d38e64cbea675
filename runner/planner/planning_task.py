"""Convert a variant of an experiment to a task of the planner, and the best candidate to places for its stages."""

import json

from ground.strict_model import InputError
from runner.planner.candidate import Candidate
from runner.planner.planning import PlanningTask, planned_placement
from runner.planner.pricing import PricedIterations
from runner.planner.search_space import most_pipelines
from runner.resolve.resolved_variant import PlannedPlacement
from runner.resolve.stage_costs import stage_costs
from runner.resolve.variant_resolution import Layout, resolve_variant, schedule_class, training_cut
from runner.resolve.written_variant import WrittenVariant
from workloads.baselines.baseline_config import BASELINE_SCHEDULES


def planned_places(written: WrittenVariant, pipelines: int) -> PlannedPlacement:
    """Return the datacenter of each stage in the best candidate for a variant, and how it was found."""
    return planned_placement(planning_task(written, pipelines=pipelines))


def planning_task(written: WrittenVariant, *, pipelines: int | None) -> PlanningTask:
    """Return the planner's task for a variant with this number of ``pipelines``, None for any number.

    Raises InputError if the planner cannot place it.
    """
    spec, topology, variant = written.spec, written.topology, written.variant
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
    return PlanningTask(
        topology,
        cut.stages,
        pipelines,
        cut.microbatches,
        cut.memory_bound,
        spec.model.context,
        variant.transport,
        spec.clock,
        schedule,
        json.dumps(variant.options, sort_keys=True),
        stage_costs(spec, cut.stages, pipelines or max(most_pipelines(topology, cut.stages), 1), written.directory),
        PricedIterations.of(spec.training.iterations, spec.training.warmup),
        lambda candidate: resolve_variant(written, _layout(candidate)),
    )


def _layout(candidate: Candidate) -> Layout:
    return Layout(candidate.stages, candidate.pipelines, candidate.pipelines_per_cell, candidate.placement)
