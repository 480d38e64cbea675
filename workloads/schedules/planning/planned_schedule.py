"""Schedules whose lists are planned ahead, from stage costs and boundary costs."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Self

from wanbed.workloads.schedules.action import Action, ActionKind, known_action
from wanbed.workloads.schedules.fixed_order import FixedOrder
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning.cell_plan import CellCosts, CellPlan, options_for
from wanbed.workloads.schedules.schedule import require_method

_KINDS: Final = {kind.value: kind for kind in ActionKind}


class PlannedSchedule(FixedOrder):
    """Each stage follows the list that ``plan`` has made for it.

    ``orders`` has one list of ``[kind, microbatch]`` per stage, as ``options_for`` returns it, or None for a stage that
    this object does not run. A recompute starts when its turn in the list comes, so that it can end before its gradient
    arrives. The last stage does not recompute. A stage splits its backwards if its list has parts of them. Raises
    ValueError naming the entry if a list is not a whole iteration of the shape, or exceeds its memory bound.
    """

    last_stage_recomputes: ClassVar[bool] = False
    recomputes_ahead: ClassVar[bool] = True

    def __init__(self, shape: PipelineShape, *, orders: object) -> None:
        require_method(type(self), PlannedSchedule, "plan")
        super().__init__(shape)
        if isinstance(orders, str) or not isinstance(orders, Sequence) or len(orders) != shape.stages:
            raise ValueError(f"orders: give one list for each of the {shape.stages} stages")
        self._planned = tuple(
            None if entries is None else self._checked(stage, entries) for stage, entries in enumerate(orders)
        )

    @classmethod
    @abstractmethod
    def plan(cls, costs: CellCosts, **options: Any) -> CellPlan:
        """Plan one iteration of a DP-cell. Raise ValueError for unknown options."""

    @classmethod
    def of_plan(cls, shape: PipelineShape, plan: CellPlan, pipeline: int) -> Self:
        """Create the schedule of one pipeline of the DP-cell, with all its stages."""
        return cls(shape, **options_for(plan, pipeline))

    def order(self, stage: int) -> Sequence[Action]:
        """Return the stage's list. Raise ValueError if this object was created without it."""
        planned = self._planned[stage]
        if planned is None:
            raise ValueError(f"orders.{stage}: this schedule was made without the list of stage {stage}")
        return planned

    def _checked(self, stage: int, entries: object) -> tuple[Action, ...]:
        where = f"orders.{stage}"
        if isinstance(entries, str) or not isinstance(entries, Sequence):
            raise ValueError(f"{where}: expected a list, found {entries!r}")
        listed = [_action(entry, f"{where}.{position}") for position, entry in enumerate(entries)]
        self._splits[stage] |= any(action.kind is ActionKind.BACKWARD_INPUT for action in listed)
        kinds = self.kinds(stage)
        actions: list[Action] = []
        done = [0] * len(kinds)
        steps = [0] * self.shape.microbatches
        for position, action in enumerate(listed):
            step = steps[action.microbatch] if 0 <= action.microbatch < len(steps) else len(kinds)
            if step == len(kinds) or action.kind is not kinds[step]:
                raise ValueError(f"{where}.{position}: {action} has no place here")
            steps[action.microbatch] += 1
            done[step] += 1
            if done[0] - done[-1] > self.shape.most_in_flight(stage):
                raise ValueError(
                    f"{where}.{position}: {action} makes {done[0] - done[-1]} held at once, "
                    f"where memory_bound allows {self.shape.most_in_flight(stage)}"
                )
            actions.append(action)
        if done[-1] < self.shape.microbatches:
            raise ValueError(f"{where}: {done[-1]} microbatches end here, where there are {self.shape.microbatches}")
        return tuple(actions)


def _action(entry: Any, where: str) -> Action:
    try:
        kind, microbatch = entry
        if type(microbatch) is int:
            return known_action(_KINDS[kind], microbatch)
    except (KeyError, TypeError, ValueError):
        pass
    raise ValueError(f"{where}: {entry!r} is no [kind, microbatch]")
