import pytest

from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.data_parallel import DataParallel
from wanbed.workloads.schedules.gpipe import GPipe
from wanbed.workloads.schedules.pipeline_shape import PipelineShape


@pytest.mark.parametrize(("recompute", "order"), [(False, "F0 B0 F1 B1 F2 B2"), (True, "F0 R0 B0 F1 R1 B1 F2 R2 B2")])
def test_each_microbatch_goes_forward_and_backward_in_turn(recompute: bool, order: str, run_pipeline) -> None:
    run = run_pipeline(DataParallel(PipelineShape(1, 3, recompute, memory_bound=1)), lambda *_: 10, lambda *_: 0)
    assert " ".join(f"{action.kind[0].upper()}{action.microbatch}" for action in run.actions[0]) == order
    assert run.deepest[0] == 1


def test_nothing_is_sent_to_another_stage() -> None:
    schedule = DataParallel(PipelineShape(1, 2))
    assert all(schedule.sends(0, action) is None for action in schedule.order(0))
    assert schedule.kinds(0) == (ActionKind.FORWARD, ActionKind.BACKWARD)


def test_replicas_are_whole_here_and_nowhere_else() -> None:
    assert DataParallel.whole_replicas
    assert not GPipe.whole_replicas


def test_a_model_cut_into_stages_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^stages: dp keeps the whole model .* not in 4 stages: give it 1 stage"):
        DataParallel(PipelineShape(4, 8))
