from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.one_forward_one_backward import OneForwardOneBackward
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.zero_bubble import ZeroBubble

LETTERS = {"forward": "F", "recompute": "R", "backward": "B", "backward_input": "I", "backward_weight": "W"}
DURATIONS = {
    ActionKind.FORWARD: 50,
    ActionKind.BACKWARD: 100,
    ActionKind.BACKWARD_INPUT: 50,
    ActionKind.BACKWARD_WEIGHT: 50,
}


def short(actions: list[Action]) -> str:
    return " ".join(f"{LETTERS[action.kind]}{action.microbatch}" for action in actions)


def duration_of(_stage: int, action: Action) -> int:
    return DURATIONS[action.kind]


def test_the_later_the_stage_the_later_its_weight_parts(run_pipeline) -> None:
    run = run_pipeline(ZeroBubble(PipelineShape(3, 5)), duration_of, lambda *_: 0)
    assert {stage: short(actions) for stage, actions in run.actions.items()} == {
        0: "F0 F1 F2 I0 W0 F3 I1 W1 F4 I2 W2 I3 W3 I4 W4",
        1: "F0 F1 I0 F2 I1 W0 F3 I2 W1 F4 I3 W2 I4 W3 W4",
        2: "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 F4 I4 W2 W3 W4",
    }


def test_a_gradient_goes_out_with_the_input_part() -> None:
    schedule = ZeroBubble(PipelineShape(3, 1))
    assert schedule.sends(1, Action(ActionKind.BACKWARD_INPUT, 0)) == (0, Message(MessageKind.GRADIENT, 0))
    assert schedule.sends(1, Action(ActionKind.BACKWARD_WEIGHT, 0)) is None
    assert schedule.sends(0, Action(ActionKind.BACKWARD_INPUT, 0)) is None


def test_a_microbatch_is_held_until_its_weight_part_has_ended() -> None:
    schedule = ZeroBubble(PipelineShape(1, 1))
    for kind in (ActionKind.FORWARD, ActionKind.BACKWARD_INPUT, ActionKind.BACKWARD_WEIGHT):
        action = Action(kind, 0)
        assert schedule.next(0) == action
        assert schedule.in_flight(0) == 1
        schedule.finished(0, action)
    assert schedule.in_flight(0) == 0
    assert schedule.complete(0)


@given(stages=st.integers(1, 8), microbatches=st.integers(1, 24))
def test_no_stage_holds_more_than_the_first_of_1f1b(stages: int, microbatches: int, run_pipeline) -> None:
    run = run_pipeline(ZeroBubble(PipelineShape(stages, microbatches)), duration_of, lambda *_: 0)
    assert all(run.deepest[stage] == min(stages, microbatches) for stage in range(stages))


def test_its_bubble_is_a_third_of_that_of_1f1b(run_pipeline) -> None:
    # ZB-H1's bubble is (S - 1)(f + i - w) against (S - 1)(f + b), here with f = i = w and b = i + w.
    stages, microbatches = 4, 12
    shape = PipelineShape(stages, microbatches)
    work = microbatches * 150
    assert run_pipeline(OneForwardOneBackward(shape), duration_of, lambda *_: 0).end - work == (stages - 1) * 150
    assert run_pipeline(ZeroBubble(shape), duration_of, lambda *_: 0).end - work == (stages - 1) * 50


def test_memory_shortens_the_delay_of_weight_parts_before_the_warm_up() -> None:
    schedule = ZeroBubble(PipelineShape(4, 8, memory_bound=(4, 3, 3, 3)))
    assert [schedule.warmup(stage) for stage in range(4)] == [4, 3, 2, 1]
    assert [schedule.weight_delay(stage) for stage in range(4)] == [0, 0, 1, 2]


def test_a_recompute_comes_before_the_input_part(run_pipeline) -> None:
    run = run_pipeline(ZeroBubble(PipelineShape(2, 2, recompute=True)), lambda *_: 10, lambda *_: 0)
    assert short(run.actions[1]) == "F0 R0 I0 F1 R1 I1 W0 W1"
