"""Record the plan of a trial, so that a report can compare the outcome with it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from wanbed.runner.resolve.cell_costs import cell_costs
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.schedules.action import Action
from wanbed.workloads.schedules.planning.cell_plan import CellCosts
from wanbed.workloads.schedules.planning.plan_run import PlanRun, priced


def plan_facts(topology: Topology, variant: PipelineVariant) -> dict[str, Any]:
    """Return a trial's facts about the plan of a variant.

    ``planned_makespan_s`` is null, and the only fact, if the schedule is not planned. ``by_rates_s`` is the
    makespan of the same plan if every transfer took its size / rate. ``computing_s`` is the compute time of each
    stage's GPU in an iteration. ``transfer_s`` is the mean transfer time over each boundary, from the first byte sent
    to the last byte received.
    """
    plan = variant.plan
    if plan is None:
        return {"planned_makespan_s": None}
    facts: dict[str, Any] = {"planned_makespan_s": plan.makespan_ns / 1e9}
    costs = cell_costs(topology, variant)
    run = PlanRun(plan, costs)
    try:
        run.iterate()
        run.iterate()
        by_rates_ns = priced(plan, _without_memory(costs)).makespan_ns
    except ValueError:
        # Training deadlocks with such a plan of a foreign schedule, and its error message has more detail.
        return facts
    boundaries = range(len(costs.boundaries))
    return facts | {
        "plan": {
            "by_rates_s": by_rates_ns / 1e9,
            "computing_s": [_computing_ns(costs, stage, order) / 1e9 for stage, order in enumerate(plan.orders[0])],
            "transfer_s": [_mean(run.transfers_ns(boundary)) / 1e9 for boundary in boundaries],
        }
    }


def _computing_ns(costs: CellCosts, stage: int, order: Sequence[Action]) -> int:
    durations = costs.durations_ns
    return sum(durations[action.kind][stage] for action in order)


def _without_memory(costs: CellCosts) -> CellCosts:
    return replace(costs, boundaries=tuple(replace(boundary, links=None) for boundary in costs.boundaries))


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0
