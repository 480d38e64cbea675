"""Atlas: the pipelines of a DP-cell take turns on the links between datacenters, by a plan made ahead."""

from typing import Any

from wanbed.ground.compiled_core.own_subclasses import mypyc_attr
from wanbed.ground.errors import shown
from wanbed.workloads.schedules.planning.cell_plan import CellCosts, CellPlan
from wanbed.workloads.schedules.planning.cell_planner import plan_cell
from wanbed.workloads.schedules.planning.cell_simulation import TurnRule
from wanbed.workloads.schedules.planning.planned_schedule import PlannedSchedule


@mypyc_attr(allow_interpreted_subclasses=True)
class Atlas(PlannedSchedule):
    """The planned schedule of Atlas, after Palak et al., arXiv 2411.14458.

    Every plan keeps these rules. No stage exceeds its memory bound. A ready backward goes first. A recompute starts so
    that it ends by the time its gradient arrives, or earlier if the GPU has nothing else to do; at most one microbatch
    is recomputed ahead. Transfers start in plan order. Of several such plans the shortest is taken. The search for
    plans is this project's own.
    """

    @classmethod
    def plan(cls, costs: CellCosts, *, turns: object = None, **unknown: Any) -> CellPlan:
        """Plan one iteration of the DP-cell.

        ``turns`` is the rule for which transfer goes first on a shared boundary: ``first-come``, ``microbatch`` (the
        oldest microbatch) or ``starving`` (the receiver with the least work queued). Without it all rules are tried
        and the shortest plan is taken. Raise ValueError for another rule or option.
        """
        if unknown:
            raise ValueError(f"{min(unknown)}: atlas has no such option, it has turns")
        known = [rule.value for rule in TurnRule]
        if turns is not None and turns not in known:
            raise ValueError(f"turns: {shown(turns)} is no rule, take one of {', '.join(known)}")
        return plan_cell(costs) if turns is None else plan_cell(costs, (TurnRule(turns),))
