"""Plan a DP-cell with split backwards: simulate a pipeline under several rules, shorten the best runs, price them.

What counts is the period of training: a stage begins the next iteration when it has ended its own part of one, so that
the longest part of any stage decides, and not when the whole pipeline has ended.
"""

from collections.abc import Iterator
from itertools import product

from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.planning.cell_plan import CellCosts, CellPlan, Turn
from wanbed.workloads.schedules.planning.plan_run import shortest
from wanbed.workloads.schedules.planning.split_orders import OrderedPipeline, Orders
from wanbed.workloads.schedules.planning.split_rules import SplitRules, SplitSimulation
from wanbed.workloads.schedules.zero_bubble import ZeroBubble

RULES = tuple(
    SplitRules(fill, forward, release) for fill, forward, release in product((0, 1, 2), (0, 1, 2), (False, True))
)
_FEWEST_RULES = 4
_SIMULATED_ACTIONS = 500_000
"""The most actions that are simulated under all rules together: about two seconds."""
_SHORTENED_ACTIONS = 500_000
"""The most actions that are run again to shorten a plan: about two seconds."""
_SHORTEST = 3
"""The number of the shortest runs that are shortened and priced."""


def plan_split_cell(costs: CellCosts) -> CellPlan:
    """Return the plan with the shortest period that is found, with its makespan over the links of ``costs``.

    All pipelines of the DP-cell run the same orders, and take turns on shared boundaries microbatch by microbatch.
    Orders are made by rate and latency, and then priced over links with a state where ``costs`` has them
    (``plan_run``). One candidate is the order of ZB-H1, so the period is never longer than that over the same links. Of
    equal periods the shorter makespan counts. The number of rules that are tried falls with the number of actions, and
    so does the effort to shorten the best runs.
    """
    pipeline = OrderedPipeline(costs)
    made = {orders: run.length_ns for orders in _candidates(costs) if (run := pipeline.run(orders)) is not None}
    best = sorted(made, key=lambda orders: made[orders])[:_SHORTEST]
    most_runs = _SHORTENED_ACTIONS // (_actions(costs) * len(best))
    wanted = dict.fromkeys([*best, *(pipeline.shortened(orders, most_runs)[0] for orders in best), _zb_h1(costs)])
    return shortest([_plan(orders, costs) for orders in wanted], costs)


def _candidates(costs: CellCosts) -> Iterator[Orders]:
    for rules in RULES[: max(_FEWEST_RULES, _SIMULATED_ACTIONS // _actions(costs))]:
        yield SplitSimulation(costs, rules).run()


def _actions(costs: CellCosts) -> int:
    return 3 * costs.shape.stages * costs.shape.microbatches


def _zb_h1(costs: CellCosts) -> Orders:
    schedule = ZeroBubble(costs.shape)
    return tuple(tuple(action.kind for action in schedule.order(stage)) for stage in range(costs.shape.stages))


def _plan(orders: Orders, costs: CellCosts) -> CellPlan:
    microbatches, pipelines = range(costs.shape.microbatches), range(costs.pipelines)
    turns: tuple[Turn, ...] = tuple((pipeline, microbatch) for microbatch in microbatches for pipeline in pipelines)
    on_boundaries = tuple(turns if boundary.shared else () for boundary in costs.boundaries)
    own = tuple(tuple(_numbered(order)) for order in orders)
    return CellPlan((own,) * costs.pipelines, on_boundaries, on_boundaries, 0, 0)


def _numbered(order: tuple[ActionKind, ...]) -> Iterator[Action]:
    done: dict[ActionKind, int] = {}
    for kind in order:
        yield Action(kind, done.get(kind, 0))
        done[kind] = done.get(kind, 0) + 1
