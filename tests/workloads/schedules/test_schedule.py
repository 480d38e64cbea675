from typing import Any

import pytest

from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.schedule import Schedule, ScheduleError

FORWARD = Action(ActionKind.FORWARD, 0)
RECOMPUTE = Action(ActionKind.RECOMPUTE, 0)
BACKWARD = Action(ActionKind.BACKWARD, 0)
ACTIVATION = Message(MessageKind.ACTIVATION, 0)
GRADIENT = Message(MessageKind.GRADIENT, 0)


class Opportunistic(Schedule):
    """A ready backward first, else a recompute, else a forward: what a policy of somebody else's may look like."""

    def choose(self, stage: int) -> Action | None:
        for kind in (ActionKind.BACKWARD, ActionKind.RECOMPUTE, ActionKind.FORWARD):
            for microbatch in range(self.shape.microbatches):
                if self.ready(stage, action := Action(kind, microbatch)):
                    return action
        return None


class Hasty(Schedule):
    def choose(self, stage: int) -> Action | None:
        return BACKWARD


def test_a_stage_in_the_middle_waits_for_each_of_its_inputs() -> None:
    schedule = Opportunistic(PipelineShape(3, 1, recompute=True))
    assert schedule.next(1) is None
    schedule.arrived(1, ACTIVATION)
    for action in (FORWARD, RECOMPUTE):
        assert schedule.next(1) == action
        schedule.finished(1, action)
    assert schedule.next(1) is None
    schedule.arrived(1, GRADIENT)
    assert schedule.next(1) == BACKWARD
    assert not schedule.complete(1)
    schedule.finished(1, BACKWARD)
    assert schedule.complete(1)
    assert schedule.next(1) is None


def test_a_busy_gpu_is_given_nothing_more() -> None:
    schedule = Opportunistic(PipelineShape(1, 2))
    assert schedule.next(0) == FORWARD
    assert schedule.next(0) is None


def test_a_stage_at_its_memory_bound_starts_no_forward() -> None:
    schedule = Opportunistic(PipelineShape(2, 3, memory_bound=(2, 1)))
    for microbatch in (0, 1):
        assert schedule.next(0) == Action(ActionKind.FORWARD, microbatch)
        schedule.finished(0, Action(ActionKind.FORWARD, microbatch))
    assert schedule.in_flight(0) == 2
    assert schedule.next(0) is None


def test_activations_go_down_and_gradients_come_back() -> None:
    schedule = Opportunistic(PipelineShape(3, 1))
    assert schedule.sends(0, FORWARD) == (1, ACTIVATION)
    assert schedule.sends(2, FORWARD) is None
    assert schedule.sends(1, RECOMPUTE) is None
    assert schedule.sends(1, BACKWARD) == (0, GRADIENT)
    assert schedule.sends(0, BACKWARD) is None


def test_a_ranks_decisions_depend_on_its_own_stage_only() -> None:
    shape = PipelineShape(2, 1)
    whole, own = Opportunistic(shape), Opportunistic(shape)
    assert whole.next(0) == FORWARD
    whole.finished(0, FORWARD)
    for schedule in (whole, own):
        schedule.arrived(1, ACTIVATION)
        assert schedule.next(1) == FORWARD


@pytest.mark.parametrize(
    ("stage", "message"),
    [(0, ACTIVATION), (1, GRADIENT), (1, Message(MessageKind.ACTIVATION, 1)), (1, Message(MessageKind.ACTIVATION, -1))],
)
def test_a_message_that_belongs_elsewhere_is_refused(stage: int, message: Message) -> None:
    with pytest.raises(ScheduleError, match=f"stage {stage} expects no"):
        Opportunistic(PipelineShape(2, 1)).arrived(stage, message)


def test_a_message_that_comes_again_is_refused() -> None:
    schedule = Opportunistic(PipelineShape(2, 1))
    schedule.arrived(1, ACTIVATION)
    with pytest.raises(ScheduleError, match="twice"):
        schedule.arrived(1, ACTIVATION)


def test_an_action_that_was_not_running_cannot_finish() -> None:
    with pytest.raises(ScheduleError, match="was not running"):
        Opportunistic(PipelineShape(1, 1)).finished(0, FORWARD)


def test_choosing_an_action_that_is_not_ready_is_an_error() -> None:
    with pytest.raises(ScheduleError, match="Hasty chose backward of microbatch 0 at stage 1, which is not ready"):
        Hasty(PipelineShape(2, 1)).next(1)


def test_choosing_what_is_no_action_is_an_error() -> None:
    class Vague(Opportunistic):
        def choose(self, stage: int) -> Any:
            return "forward"

    with pytest.raises(ScheduleError, match="Vague chose 'forward' at stage 0, which is no Action"):
        Vague(PipelineShape(1, 1)).next(0)


def test_a_policy_learns_what_awaits_an_action_oldest_first() -> None:
    schedule = Opportunistic(PipelineShape(2, 3, recompute=True))
    schedule.arrived(1, ACTIVATION)
    assert schedule.awaiting(1, ActionKind.FORWARD) == [0, 1, 2]
    assert schedule.next(1) == FORWARD
    assert schedule.awaiting(1, ActionKind.FORWARD) == [1, 2]
    assert schedule.awaiting(1, ActionKind.RECOMPUTE) == []
    schedule.finished(1, FORWARD)
    assert schedule.awaiting(1, ActionKind.RECOMPUTE) == [0]
    assert schedule.awaiting(1, ActionKind.BACKWARD_INPUT) == []


class Splitting(Opportunistic):
    splits_backward = True


class KeepingLast(Opportunistic):
    last_stage_recomputes = False


def test_the_schedule_decides_the_actions_of_a_microbatch() -> None:
    shape = PipelineShape(2, 1, recompute=True)
    recomputed = (ActionKind.FORWARD, ActionKind.RECOMPUTE, ActionKind.BACKWARD)
    assert [Opportunistic(shape).kinds(stage) for stage in (0, 1)] == [recomputed, recomputed]
    assert [KeepingLast(shape).kinds(stage) for stage in (0, 1)] == [
        recomputed,
        (ActionKind.FORWARD, ActionKind.BACKWARD),
    ]
    assert Splitting(shape).kinds(0) == (
        ActionKind.FORWARD,
        ActionKind.RECOMPUTE,
        ActionKind.BACKWARD_INPUT,
        ActionKind.BACKWARD_WEIGHT,
    )


def test_a_schedule_that_chooses_nothing_is_refused_when_it_is_made() -> None:
    class Undecided(Schedule):
        pass

    with pytest.raises(TypeError, match="choose"):
        Undecided(PipelineShape(1, 1))


def run_through(schedule: Schedule, stage: int, actions: list[Action]) -> None:
    for action in actions:
        assert schedule.next(stage) == action
        schedule.finished(stage, action)


def test_the_last_backward_of_the_last_microbatch_completes_the_gradients() -> None:
    schedule = Opportunistic(PipelineShape(1, 2))
    second = Action(ActionKind.BACKWARD, 1)
    assert not any(schedule.completes_gradients(0, action) for action in (FORWARD, BACKWARD, second))
    run_through(schedule, 0, [FORWARD, BACKWARD, Action(ActionKind.FORWARD, 1)])
    assert schedule.completes_gradients(0, second)
    assert not schedule.completes_gradients(0, Action(ActionKind.FORWARD, 1))
    split = Splitting(PipelineShape(1, 1))
    assert not split.completes_gradients(0, Action(ActionKind.BACKWARD_INPUT, 0))
    assert split.completes_gradients(0, Action(ActionKind.BACKWARD_WEIGHT, 0))


def test_a_microbatch_is_in_flight_from_the_start_of_its_forward_to_the_end_of_its_backward() -> None:
    schedule = Opportunistic(PipelineShape(1, 2))
    counts = [schedule.in_flight(0)]
    for action in (FORWARD, BACKWARD):
        assert schedule.next(0) == action
        counts.append(schedule.in_flight(0))
        schedule.finished(0, action)
        counts.append(schedule.in_flight(0))
    assert counts == [0, 1, 1, 1, 0]
    assert not schedule.complete(0)
    run_through(schedule, 0, [Action(ActionKind.FORWARD, 1), Action(ActionKind.BACKWARD, 1)])
    assert schedule.complete(0)


def test_what_is_open_ends_microbatches_first_and_begins_the_oldest_first() -> None:
    schedule = Opportunistic(PipelineShape(2, 3, recompute=True))
    run_through(schedule, 0, [FORWARD, RECOMPUTE, Action(ActionKind.FORWARD, 1)])
    assert schedule.open_actions(0) == [
        BACKWARD,
        Action(ActionKind.RECOMPUTE, 1),
        Action(ActionKind.FORWARD, 2),
    ]


def test_what_is_outside_the_shape_is_never_ready() -> None:
    schedule = Opportunistic(PipelineShape(1, 2))
    for microbatch, chunk in ((-1, 0), (2, 0), (0, 1), (0, -1)):
        assert not schedule.ready(0, Action(ActionKind.FORWARD, microbatch, chunk))
    assert not schedule.ready(0, RECOMPUTE)
    assert schedule.ready(0, FORWARD)
    two = Opportunistic(PipelineShape(2, 2))
    assert [two.gradient_there(0, microbatch) for microbatch in (-1, 0, 2)] == [False, False, False]
    assert two.gradient_there(1, 0)
    two.arrived(0, GRADIENT)
    assert (two.gradient_there(0, 0), two.gradient_there(0, 1)) == (True, False)
    with pytest.raises(ScheduleError, match="expects no activation"):
        two.arrived(1, Message(MessageKind.ACTIVATION, 0, 1))


def test_what_awaits_an_action_is_the_callers_to_change() -> None:
    schedule = Opportunistic(PipelineShape(1, 2))
    schedule.awaiting(0, ActionKind.FORWARD).clear()
    assert schedule.awaiting(0, ActionKind.FORWARD) == [0, 1]


def test_an_action_that_is_running_ends_as_itself_alone() -> None:
    schedule = Opportunistic(PipelineShape(1, 2))
    assert schedule.next(0) == FORWARD
    with pytest.raises(ScheduleError, match="stage 0 finished backward of microbatch 0, which it was not running"):
        schedule.finished(0, BACKWARD)
    schedule.finished(0, Action(ActionKind.FORWARD, 0))


def test_only_a_schedule_with_virtual_stages_is_made_for_a_shape_with_some() -> None:
    with pytest.raises(ValueError, match="virtual_stages: Opportunistic has none: give 1, not 2"):
        Opportunistic(PipelineShape(2, 2, virtual_stages=2))
    assert str(Action(ActionKind.FORWARD, 3)) == "forward of microbatch 3"
    assert str(Action(ActionKind.FORWARD, 3, 1)) == "forward of microbatch 3 in chunk 1"
