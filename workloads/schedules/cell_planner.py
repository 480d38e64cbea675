"""The planner of a DP-cell: it simulates the cell under each of a few sets of rules, and keeps the shortest run."""

from collections.abc import Sequence

from workloads.schedules.cell_plan import CellPlan, CellProfile
from workloads.schedules.cell_simulation import CellSimulation, PlanRules, TurnRule

PATIENCES: tuple[int | None, ...] = (None, 2, 1, 0)


def plan_cell(profile: CellProfile, turn_rules: Sequence[TurnRule] = tuple(TurnRule)) -> CellPlan:
    """The plan with the smallest makespan among those that ``turn_rules`` and ``PATIENCES`` make.

    The first rules win a tie. One set is Varuna's policy with transfers served as they come, so the plan is no longer
    than that policy's run of the same profile. Where the cell has one
    pipeline, or shares no boundary, transfers cannot overtake each other and only one turn rule is tried.
    """
    takes_turns = profile.pipelines > 1 and any(boundary.shared for boundary in profile.boundaries)
    rules = [
        PlanRules(turn_rule, patience)
        for turn_rule in (turn_rules if takes_turns else turn_rules[:1])
        for patience in PATIENCES
    ]
    return min((CellSimulation(profile, one).run() for one in rules), key=lambda plan: plan.makespan_ns)
