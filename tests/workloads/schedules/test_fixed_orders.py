"""GPipe and 1F1B against their textbook lists, closed forms, and published totals."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.gpipe import GPipe
from wanbed.workloads.schedules.one_forward_one_backward import OneForwardOneBackward
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.schedule import Schedule

FORWARD, BACKWARD, RECOMPUTE = 50, 100, 30
DURATIONS = {ActionKind.FORWARD: FORWARD, ActionKind.BACKWARD: BACKWARD, ActionKind.RECOMPUTE: RECOMPUTE}


def short(actions: list[Action]) -> str:
    return " ".join(f"{action.kind[0].upper()}{action.microbatch}" for action in actions)


def constant(value: int):
    return lambda *_: value


def duration_of(_stage: int, action: Action) -> int:
    return DURATIONS[action.kind]


def test_gpipe_runs_all_forwards_then_all_backwards(run_pipeline) -> None:
    run = run_pipeline(GPipe(PipelineShape(3, 4)), duration_of, constant(10))
    for stage in range(3):
        assert short(run.actions[stage]) == "F0 F1 F2 F3 B0 B1 B2 B3"


def test_1f1b_warms_up_and_then_alternates(run_pipeline) -> None:
    run = run_pipeline(OneForwardOneBackward(PipelineShape(4, 6)), duration_of, constant(10))
    assert {stage: short(actions) for stage, actions in run.actions.items()} == {
        0: "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5",
        1: "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5",
        2: "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5",
        3: "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5",
    }


@pytest.mark.parametrize("schedule_class", [GPipe, OneForwardOneBackward])
def test_every_backward_follows_its_recompute_at_the_last_stage_too(schedule_class, run_pipeline) -> None:
    run = run_pipeline(schedule_class(PipelineShape(2, 2, recompute=True)), duration_of, constant(10))
    for stage in (0, 1):
        assert "R0 B0" in short(run.actions[stage])
        assert "R1 B1" in short(run.actions[stage])


def test_a_recompute_waits_for_the_gradient(run_pipeline) -> None:
    # One microbatch, two stages: nothing overlaps, so every duration and both transfers add up.
    run = run_pipeline(GPipe(PipelineShape(2, 1, recompute=True)), duration_of, constant(1000))
    assert run.end == 2 * (FORWARD + RECOMPUTE + BACKWARD) + 2 * 1000


@pytest.mark.parametrize(
    ("stages", "microbatches", "latency", "one_forward_one_backward", "gpipe"),
    [
        (2, 4, 50, 950, 850),
        (4, 8, 0, 1650, 1650),
        (4, 8, 10, 1810, 1710),
        (4, 8, 50, 2450, 1950),
        (4, 8, 150, 4050, 2550),
        (6, 8, 50, 2950, 2450),
    ],
)
def test_totals_are_the_published_ones(  # noqa: PLR0917
    stages: int, microbatches: int, latency: int, one_forward_one_backward: int, gpipe: int, run_pipeline
) -> None:
    shape = PipelineShape(stages, microbatches)
    assert run_pipeline(OneForwardOneBackward(shape), duration_of, constant(latency)).end == one_forward_one_backward
    assert run_pipeline(GPipe(shape), duration_of, constant(latency)).end == gpipe


@given(
    stages=st.integers(1, 8),
    microbatches=st.integers(1, 12),
    forward=st.integers(1, 50),
    backward=st.integers(1, 50),
    latency=st.integers(0, 200),
)
def test_gpipe_takes_the_closed_form(  # noqa: PLR0917
    stages, microbatches, forward, backward, latency, run_pipeline
) -> None:
    durations = {ActionKind.FORWARD: forward, ActionKind.BACKWARD: backward}
    run = run_pipeline(
        GPipe(PipelineShape(stages, microbatches)), lambda _, action: durations[action.kind], constant(latency)
    )
    assert run.end == (microbatches + stages - 1) * (forward + backward) + 2 * (stages - 1) * latency


def test_a_deeper_warm_up_hides_latency(run_pipeline) -> None:
    shape = PipelineShape(4, 16)
    plain = run_pipeline(OneForwardOneBackward(shape), duration_of, constant(150)).end
    eager = run_pipeline(OneForwardOneBackward(shape, warmup_depth=12), duration_of, constant(150)).end
    assert eager < plain


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    stages, microbatches = draw(st.integers(1, 7)), draw(st.integers(1, 10))
    recompute = draw(st.one_of(st.booleans(), st.tuples(*[st.booleans()] * stages)))
    if draw(st.booleans()):
        return GPipe(PipelineShape(stages, microbatches, recompute))
    bound = draw(st.one_of(st.none(), st.integers(1, 12), st.tuples(*[st.integers(1, 12)] * stages)))
    depth = draw(st.one_of(st.none(), st.integers(1, 14)))
    return OneForwardOneBackward(PipelineShape(stages, microbatches, recompute, bound), warmup_depth=depth)


@given(schedule=schedules(), data=st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_whatever_the_times_every_microbatch_goes_through_once_within_the_memory_bound(
    schedule, data, run_pipeline
) -> None:
    run = run_pipeline(schedule, lambda *_: data.randint(0, 100), lambda *_: data.randint(0, 300))
    shape = schedule.shape
    for stage in range(shape.stages):
        assert schedule.complete(stage), "deadlock"
        kinds = {ActionKind.FORWARD, ActionKind.BACKWARD} | (
            {ActionKind.RECOMPUTE} if shape.recomputes(stage) else set()
        )
        done = [(action.kind, action.microbatch) for action in run.actions[stage]]
        assert sorted(done) == sorted((kind, microbatch) for kind in kinds for microbatch in range(shape.microbatches))
        assert run.deepest[stage] <= shape.most_in_flight(stage)
        if isinstance(schedule, OneForwardOneBackward):
            assert run.deepest[stage] <= schedule.warmup(stage)


@given(stages=st.integers(1, 8), microbatches=st.integers(1, 12))
def test_1f1b_holds_at_most_as_many_microbatches_as_stages_follow(stages, microbatches, run_pipeline) -> None:
    run = run_pipeline(OneForwardOneBackward(PipelineShape(stages, microbatches)), duration_of, constant(70))
    assert all(run.deepest[stage] == min(stages - stage, microbatches) for stage in range(stages))


def test_gpipe_refuses_a_memory_bound_that_it_cannot_keep() -> None:
    with pytest.raises(ValueError, match=r"^memory_bound: GPipe holds all 8 microbatches at stage 1, which may hold 4"):
        GPipe(PipelineShape(2, 8, memory_bound=(8, 4)))


@pytest.mark.parametrize("depth", [0, -1, 1.5, "4", True])
def test_an_invalid_warm_up_is_refused(depth: object) -> None:
    with pytest.raises(ValueError, match=r"^warmup_depth: "):
        OneForwardOneBackward(PipelineShape(2, 8), warmup_depth=depth)  # type: ignore[arg-type]


def test_a_warm_up_below_the_number_of_stages_ends_at_one_forward() -> None:
    schedule = OneForwardOneBackward(PipelineShape(4, 6), warmup_depth=2)
    assert [schedule.warmup(stage) for stage in range(4)] == [2, 1, 1, 1]


def test_gpipe_takes_a_memory_bound_of_just_its_microbatches_and_none_below() -> None:
    assert len(GPipe(PipelineShape(2, 8, memory_bound=(8, 8))).order(1)) == 16
    with pytest.raises(ValueError, match="at stage 1, which may hold 7"):
        GPipe(PipelineShape(2, 8, memory_bound=(8, 7)))


def test_what_comes_next_is_known_until_the_list_ends() -> None:
    schedule, seen = GPipe(PipelineShape(1, 1)), []
    while (action := schedule.next(0)) is not None:
        seen.append(schedule.upcoming(0))
        schedule.finished(0, action)
    assert short([each for each in seen if each is not None]) == "F0 B0"
    assert schedule.upcoming(0) is None
