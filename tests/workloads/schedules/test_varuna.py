"""Varuna's rule, told event by event to one stage in the middle."""

import pytest

from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.varuna import Varuna

FORWARD, RECOMPUTE, BACKWARD = ActionKind.FORWARD, ActionKind.RECOMPUTE, ActionKind.BACKWARD


class MiddleStage:
    """Stage 1 of 3, which tells what it starts."""

    def __init__(
        self, microbatches: int = 6, memory_bound: int | None = None, *, recompute: bool = True, rule: str = "ahead"
    ) -> None:
        self.schedule = Varuna(PipelineShape(3, microbatches, recompute, memory_bound), recompute=rule)

    def activations(self, *microbatches: int) -> None:
        for microbatch in microbatches:
            self.schedule.arrived(1, Message(MessageKind.ACTIVATION, microbatch))

    def gradients(self, *microbatches: int) -> None:
        for microbatch in microbatches:
            self.schedule.arrived(1, Message(MessageKind.GRADIENT, microbatch))

    def does(self) -> tuple[ActionKind, int] | None:
        action = self.schedule.next(1)
        if action is None:
            return None
        self.schedule.finished(1, action)
        return action.kind, action.microbatch


@pytest.fixture
def stage() -> MiddleStage:
    return MiddleStage()


def test_a_forward_goes_before_a_recompute_whose_gradient_is_not_there(stage: MiddleStage) -> None:
    stage.activations(0, 1)
    assert [stage.does(), stage.does()] == [(FORWARD, 0), (FORWARD, 1)]


def test_an_idle_gpu_recomputes_only_the_oldest_ahead(stage: MiddleStage) -> None:
    stage.activations(0, 1)
    assert [stage.does() for _ in range(4)] == [(FORWARD, 0), (FORWARD, 1), (RECOMPUTE, 0), None]


def test_forwards_go_on_while_one_is_recomputed_ahead(stage: MiddleStage) -> None:
    stage.activations(0)
    assert [stage.does(), stage.does(), stage.does()] == [(FORWARD, 0), (RECOMPUTE, 0), None]
    stage.activations(1)
    assert [stage.does(), stage.does()] == [(FORWARD, 1), None]


def test_once_the_gradient_comes_the_backward_goes_before_everything(stage: MiddleStage) -> None:
    stage.activations(0)
    stage.does()
    stage.does()
    stage.activations(1, 2)
    stage.gradients(0)
    assert [stage.does(), stage.does()] == [(BACKWARD, 0), (FORWARD, 1)]


def test_a_gradient_that_is_there_has_its_recompute_started_before_a_forward(stage: MiddleStage) -> None:
    stage.activations(0, 1)
    stage.does()
    stage.gradients(0)
    assert [stage.does() for _ in range(3)] == [(RECOMPUTE, 0), (BACKWARD, 0), (FORWARD, 1)]


def test_after_a_backward_the_next_is_recomputed_in_the_gap(stage: MiddleStage) -> None:
    stage.activations(0, 1)
    for _ in range(3):
        stage.does()
    stage.gradients(0)
    assert [stage.does() for _ in range(3)] == [(BACKWARD, 0), (RECOMPUTE, 1), None]


def test_a_gradient_that_overtakes_another_is_served_first(stage: MiddleStage) -> None:
    stage.activations(0, 1)
    for _ in range(3):
        stage.does()
    stage.gradients(1)
    assert [stage.does() for _ in range(3)] == [(RECOMPUTE, 1), (BACKWARD, 1), None]


def test_a_full_memory_lets_the_gap_be_used_for_a_recompute() -> None:
    stage = MiddleStage(memory_bound=1)
    stage.activations(0, 1)
    assert [stage.does(), stage.does(), stage.does()] == [(FORWARD, 0), (RECOMPUTE, 0), None]
    stage.gradients(0)
    assert [stage.does(), stage.does()] == [(BACKWARD, 0), (FORWARD, 1)]


def test_without_recomputation_forwards_follow_each_other() -> None:
    stage = MiddleStage(recompute=False)
    stage.activations(0, 1)
    assert [stage.does(), stage.does(), stage.does()] == [(FORWARD, 0), (FORWARD, 1), None]


def test_the_last_stage_does_not_recompute(run_pipeline) -> None:
    run = run_pipeline(Varuna(PipelineShape(3, 4, recompute=True)), lambda *_: 10, lambda *_: 5)
    assert [(action.kind, action.microbatch) for action in run.actions[2]] == [
        (kind, microbatch) for microbatch in range(4) for kind in (FORWARD, BACKWARD)
    ]


def test_a_recompute_is_hidden_behind_the_way_of_the_gradient(run_pipeline) -> None:
    durations = {FORWARD: 50, RECOMPUTE: 50, BACKWARD: 100}
    # One microbatch: neither of the two recomputes adds to the time.
    run = run_pipeline(
        Varuna(PipelineShape(3, 1, recompute=True)), lambda _, action: durations[action.kind], lambda *_: 40
    )
    assert run.end == 3 * (50 + 100) + 4 * 40


@pytest.fixture
def patient() -> MiddleStage:
    return MiddleStage(rule="on-gradient")


def test_on_gradient_a_gap_stays_idle_until_the_gradient_is_there(patient: MiddleStage) -> None:
    patient.activations(0, 1)
    assert [patient.does() for _ in range(3)] == [(FORWARD, 0), (FORWARD, 1), None]
    patient.gradients(0)
    assert [patient.does() for _ in range(3)] == [(RECOMPUTE, 0), (BACKWARD, 0), None]


def test_on_gradient_the_recompute_still_goes_before_a_forward_and_after_a_backward(patient: MiddleStage) -> None:
    patient.activations(0, 1, 2)
    patient.does()
    patient.gradients(0, 1)
    assert [patient.does() for _ in range(6)] == [
        (RECOMPUTE, 0),
        (BACKWARD, 0),
        (FORWARD, 1),
        (RECOMPUTE, 1),
        (BACKWARD, 1),
        (FORWARD, 2),
    ]


@pytest.mark.parametrize(
    ("options", "stage_0", "end"),
    [
        ({}, [(FORWARD, 0), (FORWARD, 1), (RECOMPUTE, 0), (BACKWARD, 0), (RECOMPUTE, 1), (BACKWARD, 1)], 530),
        (
            {"recompute": "on-gradient"},
            [(FORWARD, 0), (FORWARD, 1), (RECOMPUTE, 0), (BACKWARD, 0), (RECOMPUTE, 1), (BACKWARD, 1)],
            580,
        ),
    ],
    ids=str,
)
def test_two_stages_take_what_the_rule_says_by_hand(options, stage_0, end: int, run_pipeline) -> None:
    """F = R = 50, B = 100, c = 40, two microbatches.

    Stage 1: F0 90-140, B0 140-240, F1 240-290, B1 290-390; gradients at stage 0 at 280 and 430. There, ahead: R0
    100-150, B0 280-380, R1 380-430, B1 430-530. On gradient: R0 280-330, B0 330-430, R1 430-480, B1 480-580.
    """
    durations = {FORWARD: 50, RECOMPUTE: 50, BACKWARD: 100}
    run = run_pipeline(
        Varuna(PipelineShape(2, 2, recompute=True), **options), lambda _, action: durations[action.kind], lambda *_: 40
    )
    assert [(action.kind, action.microbatch) for action in run.actions[0]] == stage_0
    assert run.end == end


@pytest.mark.parametrize("rule", ["late", "", None, True, 1, ["ahead"], {"ahead": 1}, "x" * 1000])
def test_another_rule_is_refused_with_those_there_are(rule: object) -> None:
    with pytest.raises(ValueError, match=r"^recompute: .* is no rule .*, take ahead or on-gradient$") as refused:
        Varuna(PipelineShape(3, 4), recompute=rule)
    assert len(str(refused.value)) < 160
