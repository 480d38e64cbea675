"""Forecast the bubbles of each GPU from the plan of a planned schedule, before any iteration has run."""

from dataclasses import replace

from wanbed.runner.resolve.cell_costs import cell_costs
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.prefill.bubbles.bubble_forecast import IterationPlan, PlannedAction
from wanbed.workloads.prefill.bubbles.planned_iterations import planned_iterations

OPTIMIZER = ("optimizer", -1)
"""The key of the optimizer in a forecast. The other keys are those of the microbatches' actions."""


def planned_bubbles(topology: Topology, variant: PipelineVariant) -> dict[int, IterationPlan]:
    """Return the planned actions of every rank; {} if the schedule is not planned or its plan deadlocks.

    The optimizer follows a rank's last action directly, as if the all-reduce in between took no time. No bubble is
    filled there until an iteration has shown how long the all-reduce takes.
    """
    if variant.plan is None:
        return {}
    work, costs = variant.work, cell_costs(topology, variant)
    try:
        planned = planned_iterations(variant.plan, costs, max(work.optimizer_ns))
    except ValueError:
        # Training deadlocks with such a plan, and its error message has more detail.
        return {}
    return {
        variant.placement.rank(place): _with_optimizer(
            planned[place.pipeline % variant.pipelines_per_cell, place.stage], work.optimizer_ns[place.stage]
        )
        for place in variant.placement.places
    }


def _with_optimizer(plan: IterationPlan, duration_ns: int) -> IterationPlan:
    if not duration_ns:
        return plan
    end_ns = plan.actions[-1].end_ns
    return replace(plan, actions=(*plan.actions, PlannedAction(OPTIMIZER, end_ns, end_ns + duration_ns)))
