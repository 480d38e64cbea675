import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.virtual.interleaved import InterleavedOneForwardOneBackward


def short(actions: list[Action]) -> str:
    return " ".join(
        f"{'FB'[action.kind is ActionKind.BACKWARD]}{action.microbatch}{'abc'[action.chunk]}" for action in actions
    )


def test_microbatches_go_through_all_chunks_in_groups_of_as_many_as_stages() -> None:
    schedule = InterleavedOneForwardOneBackward(PipelineShape(2, 4, virtual_stages=2))
    assert short(schedule.order(0)) == "F0a F1a F0b F1b F2a B0b F3a B1b F2b B0a F3b B1a B2b B3b B2a B3a"
    assert short(schedule.order(1)) == "F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a"


@given(
    stages=st.integers(1, 6),
    groups=st.integers(1, 4),
    chunks=st.integers(2, 5),
    parts=st.tuples(st.integers(1, 50), st.integers(1, 100)),
)
def test_without_latency_its_bubble_is_that_of_1f1b_over_the_chunks(
    stages: int, groups: int, chunks: int, parts: tuple[int, int], run_pipeline
) -> None:
    forward, backward = parts
    # Narayanan et al., SC 2021, section 2.2.2: (S - 1)(f + b)/V. A part's times are those of a stage divided by V.
    schedule = InterleavedOneForwardOneBackward(PipelineShape(stages, groups * stages, virtual_stages=chunks))
    times = {ActionKind.FORWARD: forward, ActionKind.BACKWARD: backward}
    run = run_pipeline(schedule, lambda _, action: times[action.kind], lambda *_: 0)
    assert run.end == (groups * stages * chunks + stages - 1) * (forward + backward)


@given(stages=st.integers(1, 8), groups=st.integers(1, 5), chunks=st.integers(2, 4))
def test_a_stage_holds_one_part_more_than_its_warm_up(stages: int, groups: int, chunks: int, run_pipeline) -> None:
    schedule = InterleavedOneForwardOneBackward(PipelineShape(stages, groups * stages, virtual_stages=chunks))
    run = run_pipeline(schedule, lambda *_: 10, lambda *_: 0)
    for stage in range(stages):
        most = min(2 * (stages - 1 - stage) + (chunks - 1) * stages + 1, chunks * groups * stages)
        assert schedule.most_parts(stage) == run.deepest[stage] == most


def test_what_it_cannot_interleave_is_refused_with_a_remedy() -> None:
    with pytest.raises(ValueError, match=r"training\.microbatches: .* groups of 4, .* 6 are no multiple"):
        InterleavedOneForwardOneBackward(PipelineShape(4, 6, virtual_stages=2))
    with pytest.raises(ValueError, match=r"training\.virtual_stages: .* give 2 or more, or schedule 1f1b"):
        InterleavedOneForwardOneBackward(PipelineShape(4, 4))


def test_a_memory_bound_that_its_order_does_not_keep_is_refused() -> None:
    # Stage 0 holds 2 x 3 + 4 + 1 = 11 halves of a stage.
    with pytest.raises(ValueError, match=r"memory_bound: stage 0 holds up to 5\.5 microbatches .* give at least 6"):
        InterleavedOneForwardOneBackward(PipelineShape(4, 8, memory_bound=5, virtual_stages=2))
    InterleavedOneForwardOneBackward(PipelineShape(4, 8, memory_bound=6, virtual_stages=2))
