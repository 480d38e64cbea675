"""Atlas: pipelines of a cell take turns on the links between datacenters, by a plan made ahead."""

from typing import Any

from ground.shown_text import shown
from workloads.schedules.planning.cell_plan import CellCosts, CellPlan
from workloads.schedules.planning.cell_planner import plan_cell
from workloads.schedules.planning.cell_simulation import TurnRule
from workloads.schedules.planning.planned_schedule import PlannedSchedule


class Atlas(PlannedSchedule):
    """The planned schedule of Atlas, after Palak et al., arXiv 2411.14458.

    No stage exceeds its memory bound; a ready backward goes first; a recompute is started so that it has ended when its
    gradient arrives, earlier where the GPU has nothing else to do, and one microbatch at most is recomputed ahead;
    transfers start in plan order. Of several plans that keep these rules the shortest is taken. The search for plans
    is this project's own.
    """

    @classmethod
    def plan(cls, profile: CellCosts, *, turns: str | None = None, **unknown: Any) -> CellPlan:
        """Plan one iteration of the cell.

        ``turns`` allows only one rule for which transfer goes first on a shared boundary: ``first-come``,
        ``microbatch`` (the oldest) or ``starving`` (whose receiver has the least to do). Default: the best. Raises
        ValueError for another rule or option.
        """
        if unknown:
            raise ValueError(f"{min(unknown)}: atlas has no such option, it has turns")
        known = [rule.value for rule in TurnRule]
        if turns is not None and turns not in known:
            raise ValueError(f"turns: {shown(turns)} is no rule, take one of {', '.join(known)}")
        return plan_cell(profile) if turns is None else plan_cell(profile, [TurnRule(turns)])
