"""Atlas: the pipelines of a DP-cell take turns on the links between datacenters, by a plan made ahead."""

from collections.abc import Mapping
from typing import Any

from wanbed.ground.errors import shown
from wanbed.workloads.schedules.planning.cell_plan import CellCosts, CellPlan
from wanbed.workloads.schedules.planning.cell_planner import Split, plan_cell
from wanbed.workloads.schedules.planning.cell_simulation import TurnRule
from wanbed.workloads.schedules.planning.planned_schedule import PlannedSchedule


class Atlas(PlannedSchedule):
    """The planned schedule of Atlas, after Palak et al., arXiv 2411.14458.

    Every plan keeps these rules. No stage exceeds its memory bound. A ready backward goes first. A recompute starts so
    that it ends by the time its gradient arrives, or earlier if the GPU has nothing else to do; at most one microbatch
    is recomputed ahead. Transfers start in plan order. Of several such plans the shortest is taken. The search for
    plans is this project's own. Split backwards are no part of the paper: their plans are those of zero bubble, and
    are taken where the period is shorter. ``split: never`` is Atlas as published.
    """

    @classmethod
    def splits_with(cls, options: Mapping[str, Any]) -> bool | None:
        """Return what ``split`` says: None for ``auto``, the default."""
        split = options.get("split", Split.AUTO.value)
        return None if split == Split.AUTO.value else split == Split.ALWAYS.value

    @classmethod
    def plan(cls, costs: CellCosts, *, turns: object = None, split: object = "auto", **unknown: Any) -> CellPlan:
        """Plan one iteration of the DP-cell.

        ``turns`` is the rule for which transfer goes first on a shared boundary: ``first-come``, ``microbatch`` (the
        oldest microbatch) or ``starving`` (the receiver with the least work queued). Without it all rules are tried
        and the shortest plan is taken. ``split`` says whether the gradients of a backward's input and those of its
        weights are separate actions: ``never``, ``always``, or ``auto`` for the plan with the shorter period, which is
        never longer than that of ``never`` or that of ZB-2p over the same links. Raise ValueError for another rule or
        option.
        """
        if unknown:
            raise ValueError(f"{min(unknown)}: atlas has no such option, it has turns and split")
        rules = [rule.value for rule in TurnRule]
        if turns is not None and turns not in rules:
            raise ValueError(f"turns: {shown(turns)} is no rule, take one of {', '.join(rules)}")
        splits = [each.value for each in Split]
        if split not in splits:
            raise ValueError(f"split: {shown(split)} is none of {', '.join(splits)}")
        return plan_cell(costs, tuple(TurnRule) if turns is None else (TurnRule(turns),), Split(split))
