"""A pipeline of several flushes in an iteration runs the schedule of each, stage by stage one after the other."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.simulator.stage_orders import stage_orders
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.flushes import Flushes, iteration_schedule
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.registry import schedule_by_name
from wanbed.workloads.schedules.schedule import Schedule, ScheduleError

FORWARD, BACKWARD = ActionKind.FORWARD, ActionKind.BACKWARD


def flushes_of(name: str, shape: PipelineShape) -> Schedule:
    return iteration_schedule(shape, partial(schedule_by_name, name))


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "eager-1f1b", "zb-h1"])
@given(stages=st.integers(1, 5), microbatches=st.integers(1, 5), flushes=st.integers(1, 4), chance=st.randoms())
@settings(max_examples=20, deadline=None)
def test_a_stage_runs_the_order_of_one_flush_again_and_again(
    *, name: str, stages: int, microbatches: int, flushes: int, chance: Any, run_pipeline: Callable[..., Any]
) -> None:
    shape = PipelineShape(stages, microbatches * flushes, flushes=flushes)
    schedule = flushes_of(name, shape)
    run = run_pipeline(schedule, lambda *_: chance.randint(0, 100), lambda *_: chance.randint(0, 300))
    for stage, order in enumerate(stage_orders(name, stages, microbatches)):
        expected = [
            Action(action.kind, flush * microbatches + action.microbatch)
            for flush in range(flushes)
            for action in order
        ]
        assert run.actions[stage] == expected
        assert schedule.complete(stage)


@given(stages=st.integers(1, 5), microbatches=st.integers(1, 6), flushes=st.integers(1, 4), chance=st.randoms())
@settings(max_examples=40, deadline=None)
def test_a_stage_that_chooses_by_what_has_come_begins_no_flush_before_the_last_has_ended_there(
    stages: int, microbatches: int, flushes: int, chance: Any, run_pipeline: Callable[..., Any]
) -> None:
    schedule = flushes_of("varuna", PipelineShape(stages, microbatches * flushes, recompute=True, flushes=flushes))
    run = run_pipeline(schedule, lambda *_: chance.randint(0, 100), lambda *_: chance.randint(0, 300))
    for stage in range(stages):
        of_flush = [action.microbatch // microbatches for action in run.actions[stage]]
        assert of_flush == sorted(of_flush)
        assert len({*run.actions[stage]}) == len(schedule.kinds(stage)) * microbatches * flushes


@pytest.mark.parametrize(("name", "chunks"), [("interleaved-1f1b", 2), ("zb-v", 2)])
def test_virtual_stages_have_flushes_too(name: str, chunks: int, run_pipeline: Callable[..., Any]) -> None:
    shape = PipelineShape(3, 12, virtual_stages=chunks, flushes=2)
    schedule = flushes_of(name, shape)
    run = run_pipeline(schedule, lambda *_: 5, lambda *_: 7)
    for stage in range(3):
        assert schedule.complete(stage)
        assert {action.microbatch for action in run.actions[stage]} == set(range(12))
        assert run.deepest[stage] <= 6 * chunks


@given(
    stages=st.integers(1, 6),
    microbatches=st.integers(1, 6),
    flushes=st.integers(1, 4),
    forward=st.integers(1, 50),
    backward=st.integers(1, 50),
)
@settings(max_examples=40, deadline=None)
def test_each_flush_of_gpipe_fills_and_drains(
    *, stages: int, microbatches: int, flushes: int, forward: int, backward: int, run_pipeline: Callable[..., Any]
) -> None:
    schedule = flushes_of("gpipe", PipelineShape(stages, microbatches * flushes, flushes=flushes))
    times = {FORWARD: forward, BACKWARD: backward}
    run = run_pipeline(schedule, lambda _, action: times[action.kind], lambda *_: 0)
    assert run.end == flushes * (microbatches + stages - 1) * (forward + backward)


def begun(stage_flushes: int = 2, *, sums: bool = True) -> Flushes:
    """One stage of one microbatch a flush, whose first one has ended."""
    shape = PipelineShape(1, stage_flushes, flushes=stage_flushes, sums_flushes=sums)
    schedule = flushes_of("gpipe", shape)
    assert isinstance(schedule, Flushes)
    for kind in (FORWARD, BACKWARD):
        action = schedule.next(0)
        assert action == Action(kind, 0)
        assert not schedule.completes_gradients(0, action)
        schedule.finished(0, action)
    return schedule


def test_where_flushes_are_summed_a_stage_waits_for_each_sum_but_the_last() -> None:
    schedule = begun()
    assert schedule.ended_flush(0) == 0
    assert schedule.next(0) is None
    assert not schedule.ready(0, Action(FORWARD, 1))
    schedule.begin_flush(0)
    assert schedule.ended_flush(0) is None
    for kind in (FORWARD, BACKWARD):
        action = schedule.next(0)
        assert action == Action(kind, 1)
        assert schedule.completes_gradients(0, action) == (kind is BACKWARD)
        schedule.finished(0, action)
    assert schedule.ended_flush(0) is None
    assert schedule.complete(0)


def test_where_they_are_not_summed_it_goes_on() -> None:
    schedule = begun(sums=False)
    assert schedule.ended_flush(0) is None
    assert schedule.next(0) == Action(FORWARD, 1)


def test_a_message_of_a_later_flush_waits_for_it() -> None:
    schedule = flushes_of("1f1b", PipelineShape(2, 4, flushes=2))
    assert isinstance(schedule, Flushes)
    schedule.arrived(1, Message(MessageKind.ACTIVATION, 2))
    assert schedule.next(1) is None
    assert schedule.awaited(1) == (0, Message(MessageKind.ACTIVATION, 0))
    assert not schedule.ready(1, Action(FORWARD, 2))
    for microbatch in (0, 1):
        schedule.arrived(1, Message(MessageKind.ACTIVATION, microbatch))
        for kind in (FORWARD, BACKWARD):
            action = schedule.next(1)
            assert action == Action(kind, microbatch)
            sends = schedule.sends(1, action)
            assert sends == (None if kind is FORWARD else (0, Message(MessageKind.GRADIENT, microbatch)))
            schedule.finished(1, action)
    assert schedule.next(1) == Action(FORWARD, 2)
    assert schedule.awaiting(1, FORWARD) == [3]
    schedule.finished(1, Action(FORWARD, 2))
    assert schedule.open_actions(1) == [Action(BACKWARD, 2), Action(FORWARD, 3)]
    assert schedule.in_flight(1) == 1


def test_what_cannot_be_is_refused() -> None:
    schedule = flushes_of("1f1b", PipelineShape(2, 4, flushes=2))
    with pytest.raises(ScheduleError, match="there is no microbatch 4, of 4"):
        schedule.arrived(1, Message(MessageKind.ACTIVATION, 4))
    with pytest.raises(ScheduleError, match="finished forward of microbatch 2, which it was not running"):
        schedule.finished(0, Action(FORWARD, 2))
    with pytest.raises(ValueError, match="flushes: 3 do not divide 4 microbatches"):
        PipelineShape(2, 4, flushes=3)


def test_a_single_flush_is_the_schedule_itself() -> None:
    assert type(flushes_of("gpipe", PipelineShape(2, 4))).__name__ == "GPipe"


def test_a_bound_holds_the_microbatches_of_a_flush() -> None:
    shape = PipelineShape(2, 12, memory_bound=(3, 9), flushes=2)
    assert [shape.most_in_flight(stage) for stage in (0, 1)] == [3, 6]
    assert shape.flush == PipelineShape(2, 6, memory_bound=(3, 9))
