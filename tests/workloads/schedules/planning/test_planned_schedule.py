from typing import Any

import pytest

from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.atlas import Atlas
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.schedule import Schedule

SHAPE = PipelineShape(2, 2, recompute=True, memory_bound=(2, 1))
FIRST = [["forward", 0], ["forward", 1], ["recompute", 0], ["backward", 0], ["recompute", 1], ["backward", 1]]
LAST = [["forward", 0], ["backward", 0], ["forward", 1], ["backward", 1]]


def started(schedule: Schedule, stage: int) -> list[str]:
    names = []
    while (action := schedule.next(stage)) is not None:
        schedule.finished(stage, action)
        names.append(str(action))
    return names


def test_a_stage_follows_its_list_and_waits_only_for_inputs(run_pipeline) -> None:
    run = run_pipeline(Atlas(SHAPE, orders=[FIRST, LAST]), lambda *_: 10, lambda *_: 5)
    assert [[a.kind.value, a.microbatch] for a in run.actions[0]] == FIRST
    assert [[a.kind.value, a.microbatch] for a in run.actions[1]] == LAST


def test_a_recompute_starts_when_its_turn_comes_before_the_gradient_is_there() -> None:
    schedule = Atlas(SHAPE, orders=[FIRST, LAST])
    assert started(schedule, 0) == ["forward of microbatch 0", "forward of microbatch 1", "recompute of microbatch 0"]


def test_a_rank_runs_its_own_stage_without_the_lists_of_others() -> None:
    schedule = Atlas(SHAPE, orders=[FIRST, None])
    assert schedule.next(0) == Action(ActionKind.FORWARD, 0)
    with pytest.raises(ValueError, match=r"^orders\.1: this schedule was made without the list of stage 1"):
        schedule.order(1)


@pytest.mark.parametrize(
    ("first", "line"),
    [
        ("forward", r"orders\.0: expected a list, found 'forward'"),
        (7, r"orders\.0: expected a list, found 7"),
        ([["forward"]], r"orders\.0\.0: \['forward'\] is no \[kind, microbatch\]"),
        ([["upward", 0]], r"orders\.0\.0: \['upward', 0\] is no "),
        ([["forward", "0"]], r"orders\.0\.0: \['forward', '0'\] is no "),
        ([["forward", 2]], r"orders\.0\.0: forward of microbatch 2 has no place here"),
        ([["forward", -1]], r"orders\.0\.0: forward of microbatch -1 has no place here"),
        ([["forward", 0], ["forward", 0]], r"orders\.0\.1: forward of microbatch 0 has no place here"),
        ([["forward", 0], ["backward", 0]], r"orders\.0\.1: backward of microbatch 0 has no place here"),
        (FIRST[:-1], r"orders\.0: 1 microbatches end here, where there are 2"),
    ],
)
def test_a_list_that_is_no_whole_iteration_is_refused_by_its_place(first: Any, line: str) -> None:
    with pytest.raises(ValueError, match=f"^{line}"):
        Atlas(SHAPE, orders=[first, LAST])


def test_a_list_that_holds_more_than_memory_is_refused() -> None:
    greedy = [["forward", 0], ["forward", 1], ["backward", 0], ["backward", 1]]
    with pytest.raises(
        ValueError,
        match=r"^orders\.1\.1: forward of microbatch 1 makes 2 held at once, where memory_bound allows 1",
    ):
        Atlas(SHAPE, orders=[FIRST, greedy])


@pytest.mark.parametrize("orders", [[FIRST], "ab", 7])
def test_lists_for_other_stages_are_refused(orders: Any) -> None:
    with pytest.raises(ValueError, match=r"^orders: give one list for each of the 2 stages"):
        Atlas(SHAPE, orders=orders)
