"""Plan a DP-cell: simulate it under several sets of rules, and return the shortest run as the plan.

Whole backwards are simulated here for the whole DP-cell, split ones in ``shortened_planner``.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from functools import lru_cache

from wanbed.workloads.schedules.planning.cell_plan import CellCosts, CellPlan
from wanbed.workloads.schedules.planning.cell_simulation import CellSimulation, PlanRules, TurnRule
from wanbed.workloads.schedules.planning.plan_run import shortest
from wanbed.workloads.schedules.planning.shortened_planner import plan_shortened_cell

PATIENCES: tuple[int | None, ...] = (None, 2, 1, 0)

SLOWER = (2, 4)
"""Factors of the occupancy in plans that are made for slower links than there are.

TCP's ramp costs round trips that a rate alone does not show. A plan that expects its messages too early computes and
sends in an order that then waits for them. Measured on 476 DP-cells, these two factors shorten the plan by 1 % on
average, by a third at most.
"""
_SLOWER_PATIENCES: tuple[int | None, ...] = (None, 1)
_SHORTEST = 3
"""The number of shortest plans for the links as they are that get priced. No other was ever 1 % better."""


class Split(Enum):
    """The choice to split a plan's backwards: never, always, or where that makes the period shorter."""

    NEVER = "never"
    ALWAYS = "always"
    AUTO = "auto"


@lru_cache(maxsize=32)
def plan_cell(
    costs: CellCosts, turn_rules: tuple[TurnRule, ...] = tuple(TurnRule), split: Split = Split.NEVER
) -> CellPlan:
    """Return the plan with the shortest period over the links of ``costs``; of equal ones, with the shorter makespan.

    Cached: variants and sweep points often have DP-cells of equal costs.

    Plans with whole backwards are made by rate and latency: one for each of ``turn_rules`` and ``PATIENCES`` for the
    links as they are, and fewer for slower links. The shortest of the former and all of the latter are then run
    strictly (``plan_run``), over links with a state where ``costs`` has them. The first wins a tie. One candidate is
    always Varuna's policy with the first of ``turn_rules`` (by default first-come), so the plan is never longer than
    that policy's order over the same links. Where the DP-cell has one pipeline, or no shared boundary, transfers cannot
    overtake each other and only the first turn rule is tried. Of split and whole backwards with equal times the whole
    ones are taken.
    """
    found = []
    if split is not Split.ALWAYS:
        found.append(shortest(_wanted(replace(costs, between_ns=()), turn_rules), costs))
    if split is not Split.NEVER:
        found.append(plan_shortened_cell(replace(costs, shape=costs.shape.keeping_last())))
    return min(found, key=lambda plan: (plan.period_ns, plan.makespan_ns))


@lru_cache(maxsize=16)
def _wanted(costs: CellCosts, turn_rules: Sequence[TurnRule]) -> tuple[CellPlan, ...]:
    """Return the plans that are worth pricing. Cached: DP-cells of candidates of a search differ in ``between_ns``."""
    takes_turns = costs.pipelines > 1 and any(boundary.shared for boundary in costs.boundaries)
    tried = turn_rules if takes_turns else turn_rules[:1]
    made = [CellSimulation(costs, PlanRules(rule, patience)).run() for rule in tried for patience in PATIENCES]
    wanted = [made[0], *sorted(_distinct(made), key=lambda plan: plan.makespan_ns)[:_SHORTEST]]
    wanted += [
        CellSimulation(costs.slowed(factor), PlanRules(tried[-1], patience)).run()
        for factor in SLOWER
        for patience in _SLOWER_PATIENCES
    ]
    return tuple(_distinct(wanted))


def _distinct(plans: Sequence[CellPlan]) -> list[CellPlan]:
    """Return the plans without those whose orders and turns equal an earlier one's, whatever their makespan."""
    found: dict[tuple[object, ...], CellPlan] = {}
    for plan in plans:
        found.setdefault((plan.orders, plan.activation_turns, plan.gradient_turns), plan)
    return list(found.values())
