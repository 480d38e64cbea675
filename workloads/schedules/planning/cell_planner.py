"""Plan a DP-cell: simulate the cell under each of a few sets of rules, and keep the shortest run."""

from collections.abc import Sequence
from dataclasses import replace

from workloads.schedules.planning.cell_plan import CellCosts, CellPlan
from workloads.schedules.planning.cell_simulation import CellSimulation, PlanRules, TurnRule
from workloads.schedules.planning.plan_run import iteration_ns

PATIENCES: tuple[int | None, ...] = (None, 2, 1, 0)

SLOWER = (2, 4)
"""How many times as long transfers take in plans that are made for links slower than they are.

TCP's ramp takes a round trip where a rate takes none, and a plan that expects its messages too early computes, and
sends, in an order that waits for them. Measured on 476 cells, these two bring 1 % on average and a third at most.
"""
_SLOWER_PATIENCES: tuple[int | None, ...] = (None, 1)
_SHORTEST = 3
"""So many of the plans for links as they are get priced; of the others none was ever 1 % better."""


def plan_cell(profile: CellCosts, turn_rules: Sequence[TurnRule] = tuple(TurnRule)) -> CellPlan:
    """Return the plan that takes the shortest over the profile's links, with the makespan that it has there.

    Plans are made by rate and latency: with each of ``turn_rules`` and ``PATIENCES`` for links as they are, and with
    fewer for slower ones. The shortest of the former, and all of the latter, are run strictly over the links that
    remember, if the profile has such. The first wins a tie. One of them is always Varuna's policy with transfers served
    as they come (where ``turn_rules`` has them), so the plan is no longer than that policy's order over the same links.
    Where the cell has one pipeline, or shares no boundary, transfers cannot overtake each other and only one turn rule
    is tried.
    """
    takes_turns = profile.pipelines > 1 and any(boundary.shared for boundary in profile.boundaries)
    tried = turn_rules if takes_turns else turn_rules[:1]
    made = [CellSimulation(profile, PlanRules(rule, patience)).run() for rule in tried for patience in PATIENCES]
    wanted = [made[0], *sorted(_distinct(made), key=lambda plan: plan.makespan_ns)[:_SHORTEST]]
    wanted += [
        CellSimulation(_slowed(profile, factor), PlanRules(tried[-1], patience)).run()
        for factor in SLOWER
        for patience in _SLOWER_PATIENCES
    ]
    priced = (replace(plan, makespan_ns=iteration_ns(plan, profile)) for plan in _distinct(wanted))
    return min(priced, key=lambda plan: plan.makespan_ns)


def _slowed(profile: CellCosts, factor: int) -> CellCosts:
    return replace(
        profile,
        boundaries=tuple(
            replace(boundary, occupancy_ns=boundary.occupancy_ns * factor) for boundary in profile.boundaries
        ),
    )


def _distinct(plans: Sequence[CellPlan]) -> list[CellPlan]:
    """Return the first of each set of plans with equal orders and turns, whatever their length."""
    found: dict[tuple[object, ...], CellPlan] = {}
    for plan in plans:
        found.setdefault((plan.orders, plan.activation_turns, plan.gradient_turns), plan)
    return list(found.values())
