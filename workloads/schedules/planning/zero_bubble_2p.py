"""ZB-2p: zero bubble by a plan made ahead, with up to twice the memory of 1F1B."""

from typing import Any, ClassVar

from wanbed.workloads.schedules.planning.cell_plan import CellCosts, CellPlan
from wanbed.workloads.schedules.planning.cell_planner import Split, plan_cell
from wanbed.workloads.schedules.planning.planned_schedule import PlannedSchedule


class ZeroBubble2p(PlannedSchedule):
    """The automatic schedule of zero bubble, ZB-2p: each stage may hold 2 S microbatches, twice those of 1F1B.

    The orders of forwards, input-gradient parts and weight-gradient parts are planned from the stages' times and the
    transfers between them. A microbatch is held from the start of its forward to the end of its weight part. A memory
    bound of the shape replaces 2 S. The last stage keeps its activations, as Varuna's does: its backwards follow its
    forwards at once. The search for orders is this project's own. The optimizer step of a stage follows
    its last action and the all-reduce; it is not validated after the fact, so that a step over all stages, as for a
    global gradient norm, has no place here.
    Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 3.
    """

    splits_backward: ClassVar[bool] = True

    @classmethod
    def default_memory_bound(cls, stages: int) -> int:
        """Return 2 S."""
        return 2 * stages

    @classmethod
    def plan(cls, costs: CellCosts, **unknown: Any) -> CellPlan:
        """Plan one iteration of the DP-cell. Raise ValueError for any option."""
        if unknown:
            raise ValueError(f"{min(unknown)}: zb-2p has no options")
        return plan_cell(costs, split=Split.ALWAYS)
