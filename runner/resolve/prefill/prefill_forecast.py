"""Forecast each GPU's bubbles from a plan made ahead, before any iteration has been seen."""

from dataclasses import replace

from runner.resolve.cell_costs import cell_costs
from runner.resolve.resolved_variant import ResolvedVariant
from testbed.network.topology import Topology
from workloads.prefill.bubbles.bubble_forecast import IterationPlan, PlannedAction
from workloads.prefill.bubbles.planned_iterations import planned_iterations

OPTIMIZER = ("optimizer", -1)
"""The key of the optimizer in a forecast, beside those of the microbatches' actions."""


def planned_bubbles(topology: Topology, variant: ResolvedVariant) -> dict[int, IterationPlan]:
    """Return the plan of every rank, {} for a schedule that is not made ahead, and for a plan that never ends.

    The optimizer stands right behind a rank's last action, where it is without the sums that come before it: nothing is
    filled there until an iteration has shown how long these take.
    """
    if variant.plan is None:
        return {}
    work, profile = variant.work, cell_costs(topology, variant)
    try:
        planned = planned_iterations(variant.plan, profile, max(work.optimizer_ns))
    except ValueError:
        # Such a plan deadlocks training, which says so with more to go by.
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
