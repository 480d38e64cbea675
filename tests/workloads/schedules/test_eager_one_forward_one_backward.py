import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.eager_one_forward_one_backward import EagerOneForwardOneBackward
from wanbed.workloads.schedules.one_forward_one_backward import OneForwardOneBackward
from wanbed.workloads.schedules.pipeline_shape import PipelineShape

DURATIONS = {ActionKind.FORWARD: 50, ActionKind.BACKWARD: 100}


def duration_of(_stage: int, action: Action) -> int:
    return DURATIONS[action.kind]


def warmups(schedule: OneForwardOneBackward) -> list[int]:
    return [schedule.warmup(stage) for stage in range(schedule.shape.stages)]


def test_by_default_the_warm_up_is_about_twice_as_deep() -> None:
    assert warmups(EagerOneForwardOneBackward(PipelineShape(4, 16))) == [7, 5, 3, 1]


def test_another_depth_falls_evenly_to_one_at_the_last_stage() -> None:
    shape = PipelineShape(4, 32)
    assert warmups(EagerOneForwardOneBackward(shape, warmup_depth=13)) == [13, 9, 5, 1]
    assert warmups(EagerOneForwardOneBackward(shape, warmup_depth=12)) == [12, 9, 5, 1]
    assert warmups(EagerOneForwardOneBackward(shape, warmup_depth=1)) == [1, 1, 1, 1]


@given(stages=st.integers(1, 8), microbatches=st.integers(1, 40))
def test_a_depth_of_all_stages_is_1f1b(stages: int, microbatches: int) -> None:
    shape = PipelineShape(stages, microbatches)
    eager = EagerOneForwardOneBackward(shape, warmup_depth=stages)
    plain = OneForwardOneBackward(shape)
    assert all(eager.order(stage) == plain.order(stage) for stage in range(stages))


def test_memory_bounds_the_warm_up() -> None:
    shape = PipelineShape(4, 16, memory_bound=(6, 4, 4, 4))
    assert warmups(EagerOneForwardOneBackward(shape)) == [6, 4, 3, 1]


def test_it_hides_latency_that_1f1b_does_not(run_pipeline) -> None:
    shape = PipelineShape(4, 16)
    ends = [
        run_pipeline(schedule_class(shape), duration_of, lambda *_: 75).end
        for schedule_class in (OneForwardOneBackward, EagerOneForwardOneBackward)
    ]
    # One backward and one forward at stage 0 a microbatch, and the way there and back once: nothing is left to hide.
    assert ends[0] > ends[1] == (16 + 3) * 150 + 2 * 3 * 75


@pytest.mark.parametrize("depth", [0, 1.5, True])
def test_an_invalid_depth_is_refused(depth: object) -> None:
    with pytest.raises(ValueError, match=r"^warmup_depth: "):
        EagerOneForwardOneBackward(PipelineShape(2, 8), warmup_depth=depth)  # type: ignore[arg-type]
