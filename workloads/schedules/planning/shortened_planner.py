"""Plan a DP-cell with split backwards: make orders under several sets of rules, shorten the best ones, price them all.

What counts is the period of training: a stage begins the next iteration when it has ended its own part of one.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts, CellPlan
from wanbed.workloads.schedules.planning.ordered_cell import CellOrders, OrderedCell
from wanbed.workloads.schedules.planning.plan_run import PRICED_ITERATIONS, shortest
from wanbed.workloads.schedules.planning.shortening import Shortening
from wanbed.workloads.schedules.planning.split_planner import RULES, SplitSimulation
from wanbed.workloads.schedules.planning.stage_order import Order
from wanbed.workloads.schedules.zero_bubble import ZeroBubble

_FEWEST_RULES = 4

_SIMULATED_ACTIONS = 500_000
"""The most actions that are simulated under all rules together: less than a second."""

_SHORTENED_ACTIONS = 1_000_000
"""The most actions that are run again to shorten a plan: a second, a third of it compiled."""

_SHORTEST = 3
"""The number of the shortest runs that are shortened and priced."""

_PRICED_ACTIONS = 200_000
"""The most actions that are run over links with a state to find the best of further plans: about a second."""

_SHARES = 3
"""The effort is divided among the numbers of microbatches to hold up to 2 S. More than these has a share of its own."""

_SLOWER = (1, 2, 4)
"""Factors of the occupancy of links for which further plans are made, as in ``cell_planner``."""


@lru_cache(maxsize=32)
def plan_shortened_cell(costs: CellCosts) -> CellPlan:
    """Return the plan with the shortest period that is found, with its makespan over the links of ``costs``. Cached.

    Orders are made by rate and latency, first the same for all pipelines of the DP-cell, which take turns on shared
    boundaries microbatch by microbatch. The shortest are then shortened further. One candidate is the order of ZB-H1,
    so the period is never longer than that over the same links. Of equal periods the shorter makespan counts. The
    number of rules that are tried falls with the number of actions, and so does the effort to shorten the best runs.

    Over links with a state (``plan_run``) stages that hold more microbatches may send in longer bursts, between which
    windows close. So where ``costs`` has such links, plans for less memory and for slower links are priced as well.
    Without such links there is one for 2 S microbatches, because the search for more memory may end before it is as
    short. So more memory than those of ZB-2p never makes a plan longer.
    """
    # The same bound for plans of any kind, so that those for the same costs are made once.
    costs = replace(costs, shape=costs.shape.holding(costs.shape.microbatches))
    cell = OrderedCell(costs)
    held = _held(costs)
    effort = _SHORTENED_ACTIONS // (min(1 + len(held), _SHARES) if costs.has_state else 1)
    wanted = [cell.alike(_zb_h1(costs))]
    for most in (costs.shape.microbatches, *held):
        wanted += _shortened(replace(costs, shape=costs.shape.holding(most)), effort)
    if costs.has_state:
        others = [
            _best(replace(costs.slowed(factor), shape=costs.shape.holding(most)))
            for most in (costs.shape.microbatches, *held)
            for factor in _SLOWER
        ]
        shares = min(len(others), _SHARES * len(_SLOWER))
        of_each = 1 + _PRICED_ACTIONS // (PRICED_ITERATIONS * cell.actions * shares)
        wanted += [orders for found in others for orders in found[:of_each]]
    return shortest([cell.plan(orders) for orders in dict.fromkeys(wanted)], costs)


def _held(costs: CellCosts) -> list[int]:
    """Return how many microbatches a stage could hold in place of those that it may, for further plans."""
    stages = costs.shape.stages
    most = max(map(costs.shape.most_in_flight, range(stages)))
    tried = (2 * stages, 3 * stages // 2, stages) if costs.has_state else (2 * stages,)
    return [each for each in tried if each < most]


def _shortened(costs: CellCosts, most_actions: int) -> list[CellOrders]:
    """Return the shortest orders that rules give, and those that are made of them, within so many actions.

    Where pipelines share links, one of them is shortened first, as if all ran in step: that takes less time.
    """
    cell, best = OrderedCell(costs), list(_best(costs)[:_SHORTEST])
    if cell.pipelines == 1:
        return [*best, *Shortening(cell, most_actions).shortened(best)]
    in_step = OrderedCell(_in_step(costs))
    starts = [in_step.alike(orders.stages[: cell.stages]) for orders in best]
    best += [cell.alike(found.stages) for found in Shortening(in_step, most_actions // 2).shortened(starts)]
    return [*best, *Shortening(cell, most_actions // 2).shortened(best)]


def _in_step(costs: CellCosts) -> CellCosts:
    """Return the costs of one pipeline, each of whose transfers waits for those of all pipelines."""

    def alone(boundary: BoundaryCosts) -> BoundaryCosts:
        gradients = None if boundary.gradients is None else alone(boundary.gradients)
        occupancy_ns = boundary.occupancy_ns * (costs.pipelines if boundary.shared else 1)
        return replace(boundary, occupancy_ns=occupancy_ns, shared=False, gradients=gradients)

    return replace(costs, pipelines=1, boundaries=tuple(map(alone, costs.boundaries)))


@lru_cache(maxsize=16)
def _best(costs: CellCosts) -> tuple[CellOrders, ...]:
    """Return the orders that rules give, those with the shortest run first. Any that deadlock are left out. Cached."""
    cell = OrderedCell(costs)
    runs = {orders: cell.run(orders) for orders in map(cell.alike, dict.fromkeys(_candidates(costs)))}
    made = {orders: run.length_ns for orders, run in runs.items() if run is not None}
    return tuple(sorted(made, key=lambda orders: made[orders]))


def _candidates(costs: CellCosts) -> Iterator[tuple[Order, ...]]:
    for rules in RULES[: max(_FEWEST_RULES, _SIMULATED_ACTIONS // _actions(costs))]:
        yield SplitSimulation(costs, rules).run()


def _actions(costs: CellCosts) -> int:
    return 3 * costs.shape.stages * costs.shape.microbatches


def _zb_h1(costs: CellCosts) -> tuple[Order, ...]:
    schedule = ZeroBubble(costs.shape)
    return tuple(tuple(action.kind for action in schedule.order(stage)) for stage in range(costs.shape.stages))
