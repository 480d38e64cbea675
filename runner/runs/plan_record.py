"""Record the plan of a trial, so that a report can compare the outcome with it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from runner.resolve.cell_costs import cell_costs
from runner.resolve.resolved_variant import ResolvedVariant
from testbed.network.topology import Topology
from workloads.schedules.action import Action, ActionKind
from workloads.schedules.planning.cell_plan import CellCosts
from workloads.schedules.planning.plan_run import PlanRun, iteration_ns


def plan_facts(topology: Topology, variant: ResolvedVariant) -> dict[str, Any]:
    """Return a trial's facts about the plan of a variant; the time alone, null, where nothing is planned.

    ``by_rates_s`` is what the same plan would take if every transfer took its size over its rate, ``computing_s`` what
    the GPU of each stage computes in an iteration, ``transfer_s`` the mean over each boundary from a transfer's first
    byte to its last one's arrival.
    """
    plan = variant.plan
    if plan is None:
        return {"planned_iteration_time_s": None}
    facts: dict[str, Any] = {"planned_iteration_time_s": plan.makespan_ns / 1e9}
    profile = cell_costs(topology, variant)
    run = PlanRun(plan, profile)
    try:
        run.iterate()
        run.iterate()
        by_rates_ns = iteration_ns(plan, _without_memory(profile))
    except ValueError:
        # Such a plan, of somebody's own schedule, deadlocks training, which says so with more to go by.
        return facts
    boundaries = range(len(profile.boundaries))
    return facts | {
        "plan": {
            "by_rates_s": by_rates_ns / 1e9,
            "computing_s": [_computing_ns(profile, stage, order) / 1e9 for stage, order in enumerate(plan.orders[0])],
            "transfer_s": [_mean(run.transfers_ns(boundary)) / 1e9 for boundary in boundaries],
        }
    }


def _computing_ns(profile: CellCosts, stage: int, order: Sequence[Action]) -> int:
    durations = {
        ActionKind.FORWARD: profile.forward_ns,
        ActionKind.RECOMPUTE: profile.recompute_ns,
        ActionKind.BACKWARD: profile.backward_ns,
    }
    return sum(durations[action.kind][stage] for action in order)


def _without_memory(profile: CellCosts) -> CellCosts:
    return replace(profile, boundaries=tuple(replace(boundary, links=None) for boundary in profile.boundaries))


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0
