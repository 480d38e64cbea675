import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.schedules.action import Action
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.virtual.zero_bubble_v import ZeroBubbleV

LETTERS = {"forward": "F", "recompute": "R", "backward_input": "I", "backward_weight": "W"}


def short(actions: list[Action]) -> str:
    return " ".join(f"{LETTERS[action.kind]}{action.microbatch}{'ab'[action.chunk]}" for action in actions)


def test_the_order_of_two_stages() -> None:
    schedule = ZeroBubbleV(PipelineShape(2, 3, virtual_stages=2))
    assert short(schedule.order(0)) == "F0a F1a F2a F0b I0b W0b F1b I1b W1b I0a W0a F2b I2b W2b I1a W1a I2a W2a"
    assert short(schedule.order(1)) == "F0a F0b F1a F1b I0b W0b F2a I0a W0a F2b I1b W1b I1a I2b I2a W1a W2b W2a"


@given(stages=st.integers(1, 8), more=st.integers(0, 12), part=st.integers(1, 50))
def test_only_filling_is_left_of_the_bubble_where_all_parts_take_equally_long(
    stages: int, more: int, part: int, run_pipeline
) -> None:
    # Qi et al., arXiv 2401.10241, section 6: zero bubble if forward, input and weight part are equal. The last stage
    # begins S - 1 parts later, and so ends S - 1 parts later: that much of a pipeline's synchronous iteration is left.
    microbatches = 2 * stages - 1 + more
    schedule = ZeroBubbleV(PipelineShape(stages, microbatches, virtual_stages=2))
    run = run_pipeline(schedule, lambda *_: part, lambda *_: 0)
    assert run.end == (6 * microbatches + stages - 1) * part


@given(stages=st.integers(1, 8), microbatches=st.integers(1, 30))
def test_every_stage_holds_what_the_first_stage_of_1f1b_holds(stages: int, microbatches: int, run_pipeline) -> None:
    schedule = ZeroBubbleV(PipelineShape(stages, microbatches, virtual_stages=2))
    run = run_pipeline(schedule, lambda *_: 10, lambda *_: 0)
    for stage in range(stages):
        assert run.deepest[stage] <= schedule.most_parts(stage) <= 2 * min(stages, microbatches)
        if microbatches >= 2 * stages - 1:
            assert schedule.most_parts(stage) == 2 * stages


def test_a_recompute_comes_before_the_input_part() -> None:
    schedule = ZeroBubbleV(PipelineShape(1, 2, recompute=True, virtual_stages=2))
    assert short(schedule.order(0)) == "F0a F0b R0b I0b W0b F1a R0a I0a W0a F1b R1b I1b W1b R1a I1a W1a"


@pytest.mark.parametrize("chunks", [1, 3])
def test_other_numbers_of_virtual_stages_are_refused(chunks: int) -> None:
    with pytest.raises(ValueError, match=rf"training\.virtual_stages: zb-v has 2 of them, not {chunks}: give 2"):
        ZeroBubbleV(PipelineShape(4, 8, virtual_stages=chunks))


def test_a_memory_bound_below_that_of_1f1b_is_refused() -> None:
    with pytest.raises(ValueError, match="memory_bound: stage 0 holds up to 4 microbatches"):
        ZeroBubbleV(PipelineShape(4, 8, memory_bound=3, virtual_stages=2))
    ZeroBubbleV(PipelineShape(4, 8, memory_bound=4, virtual_stages=2))
