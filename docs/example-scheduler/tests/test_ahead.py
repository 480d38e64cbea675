"""Test the schedule without an engine: call it as an engine does, with messages that take no time."""

import pytest
from example_scheduler.ahead import Ahead

from wanbed import PipelineShape


def run(schedule: Ahead) -> list[int]:
    """Let every stage act whenever it can. Return the most microbatches that each held at once."""
    stages = range(schedule.shape.stages)
    deepest = [0 for _ in stages]
    moved = True
    while moved:
        moved = False
        for stage in stages:
            action = schedule.next(stage)
            if action is None:
                continue
            moved = True
            deepest[stage] = max(deepest[stage], schedule.in_flight(stage))
            schedule.finished(stage, action)
            if sent := schedule.sends(stage, action):
                schedule.arrived(*sent)
    assert all(schedule.complete(stage) for stage in stages), "some microbatch never got through"
    return deepest


@pytest.mark.parametrize("ahead", [0, 1, 3])
@pytest.mark.parametrize("stages", [1, 2, 5])
@pytest.mark.parametrize("microbatches", [1, 4, 16])
def test_every_microbatch_gets_through(stages: int, microbatches: int, ahead: int) -> None:
    """No stage waits for ever, whatever the sizes."""
    run(Ahead(PipelineShape(stages, microbatches), ahead=ahead))


def test_a_stage_warms_up_with_one_forward_more_and_the_last_with_one() -> None:
    """The warm-ups of 1f1b would be 4, 3, 2 and 1."""
    schedule = Ahead(PipelineShape(4, 16))
    assert [schedule.warmup(stage) for stage in range(4)] == [5, 4, 3, 1]


@pytest.mark.parametrize("ahead", [0, 2, 9])
def test_the_memory_bound_is_kept(ahead: int) -> None:
    """The bound holds however far ahead the schedule is configured to run."""
    assert max(run(Ahead(PipelineShape(4, 16, memory_bound=4), ahead=ahead))) <= 4


def test_options_that_make_no_sense_are_refused() -> None:
    """The error names the option."""
    with pytest.raises(ValueError, match="ahead: -1"):
        Ahead(PipelineShape(4, 16), ahead=-1)
