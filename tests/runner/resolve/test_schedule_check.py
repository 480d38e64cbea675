"""Test that a schedule of another package is refused before anything runs, with the reason."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.workloads.schedules.planning.test_plan_run import crossed_turns
from wanbed.runner.resolve import schedule_check
from wanbed.runner.resolve.schedule_check import awaited, check_schedule, planned
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.atlas import Atlas
from wanbed.workloads.schedules.gpipe import GPipe
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts, CellPlan
from wanbed.workloads.schedules.schedule import Schedule

SHAPE = PipelineShape(2, 4)

FORWARD = ActionKind.FORWARD


class Good(GPipe):
    """A list that comes to an end."""


class Raising(GPipe):
    def order(self, stage: int) -> Sequence[Action]:
        raise KeyError(stage)


class Exiting(GPipe):
    def order(self, stage: int) -> Sequence[Action]:
        raise SystemExit(0)


class RaisingConstructor(GPipe):
    def __init__(self, shape: PipelineShape, *, depth: int = 1, width: int = 2) -> None:
        super().__init__(shape)
        self.ratio = depth / (width - 2)


class Needing(GPipe):
    def __init__(self, shape: PipelineShape, *, depth: int) -> None:
        super().__init__(shape)
        self.depth = depth


class EndlessList(GPipe):
    def order(self, stage: int) -> Iterator[Action]:  # type: ignore[override]
        while True:
            yield Action(FORWARD, 0)


class NeverReturning(GPipe):
    def order(self, stage: int) -> Sequence[Action]:
        while True:
            stage += 1


class NoBackward(GPipe):
    def order(self, stage: int) -> Sequence[Action]:
        return [Action(FORWARD, microbatch) for microbatch in range(self.shape.microbatches)]


class Twice(GPipe):
    def order(self, stage: int) -> Sequence[Action]:
        return [Action(FORWARD, 0), Action(FORWARD, 0)]


class NoList(GPipe):
    def order(self, stage: int) -> Any:
        return None


class Words(GPipe):
    def order(self, stage: int) -> Any:
        return ["forward"]


class Waiting(Schedule):
    def choose(self, stage: int) -> Action | None:
        return None


def fault(kind: type[Schedule], options: dict[str, object] | None = None) -> str:
    with pytest.raises(ValueError, match=r".") as refused:
        check_schedule(f"{__name__}:{kind.__qualname__}", SHAPE, options or {})
    text = str(refused.value)
    assert "\n" not in text
    return text.removeprefix(f"{__name__}:{kind.__qualname__}: ")


def test_a_schedule_that_ends_passes() -> None:
    check_schedule(f"{__name__}:Good", SHAPE, {})


def line_of(kind: type[Schedule], offset: int) -> str:
    return f"({__file__}:{open(__file__).read().split(f'class {kind.__name__}(')[0].count(chr(10)) + 1 + offset})"


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (Raising, {}, f"KeyError: 0 {line_of(Raising, 2)}"),
        (Exiting, {}, f"SystemExit: 0 {line_of(Exiting, 2)}"),
        (RaisingConstructor, {}, f"ZeroDivisionError: division by zero {line_of(RaisingConstructor, 3)}"),
        (RaisingConstructor, {"depht": 3}, "no option 'depht': it takes depth, width"),
        (Good, {"depth": 3}, "no option 'depth': it takes none"),
        (Needing, {}, "the option 'depth' is missing: it takes depth"),
        (
            EndlessList,
            {},
            "EndlessList.order(0) has more than 8 actions, forward, backward of each of 4 microbatches",
        ),
        (
            NoBackward,
            {},
            "deadlocks: stage 1 waits for the backward of microbatch 0, which is ready and not chosen (the stage's "
            "list has ended)",
        ),
        (
            Twice,
            {},
            "deadlocks: stage 0 waits for the forward of microbatch 1, which is ready and not chosen (the stage's "
            "list has the forward of microbatch 0 next)",
        ),
        (
            Waiting,
            {},
            "deadlocks: stage 0 waits for the forward of microbatch 0, which is ready and not chosen",
        ),
        (Words, {}, "Words.order(0) has 'forward' at position 0, which is no Action"),
    ],
)
def test_a_fault_is_named_with_its_line_the_options_there_are_or_what_a_stage_waits_for(
    kind: type[Schedule], options: dict[str, object], words: str
) -> None:
    assert fault(kind, options) == words


def test_what_is_no_list_is_refused() -> None:
    assert fault(NoList).startswith(f"TypeError: 'NoneType' object is not iterable ({__file__}:")


def test_a_call_that_never_returns_is_given_up_and_its_line_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_check, "CALL_LIMIT_S", 0.2)
    assert fault(NeverReturning).startswith(f"it has not returned after 0.2 s ({__file__}:")


class Crossing(Atlas):
    @classmethod
    def plan(cls, costs: CellCosts, **_options: Any) -> CellPlan:
        return crossed_turns()


def test_a_plan_whose_turns_wait_for_each_other_is_refused_where_sends_block() -> None:
    shared = BoundaryCosts(5, 10, shared=True)
    shape, times = PipelineShape(3, 2), (10,) * 3
    costs = CellCosts(shape, 2, times, times, times, (shared, shared))
    assert planned(Crossing, costs, {}) == crossed_turns()
    with pytest.raises(ValueError, match="its plan deadlocks where sends block"):
        planned(Crossing, replace(costs, sends_block=True), {})


class Slow(GPipe):
    """A schedule whose check is not done in time."""

    def order(self, stage: int) -> Sequence[Action]:
        return [Action(FORWARD, microbatch) for microbatch in range(self.shape.microbatches)]


def test_a_check_that_takes_too_long_is_left_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_check, "_CHECK_S", -1.0)
    check_schedule(f"{__name__}:Slow", SHAPE, {})


def test_a_stage_at_its_memory_bound_is_told_and_one_that_waits_for_a_message() -> None:
    class Held(Waiting):
        pass

    made = Held(PipelineShape(2, 4, memory_bound=1))
    made._started(0, Action(FORWARD, 0))
    made.finished(0, Action(FORWARD, 0))
    assert awaited(made, 0) == "the backward of microbatch 0, whose gradient has not come"
    assert awaited(Waiting(SHAPE), 1) == "the forward of microbatch 0, whose activation has not come"
