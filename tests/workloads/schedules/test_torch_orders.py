"""The orders of gpipe, 1f1b, zb-h1, interleaved-1f1b and zb-v are those of torch's own schedules for the same S and M.

Two of torch's listings differ from what torch itself means, and are read as follows:
- ``Schedule1F1B._get_pipeline_order`` counts the last stage's forwards from 1 (it lists a microbatch M, and no
  microbatch 0). What torch runs counts from 0, so there the test compares with the calls that a step makes.
- ``ScheduleInterleavedZeroBubble`` refuses some M, for the sake of several stages a rank. With one stage a rank
  its order does not depend on that, so its list is asked for directly.
"""

from collections.abc import Sequence
from unittest.mock import MagicMock

import pytest
from torch.distributed.pipelining import schedules as torch_schedules
from torch.distributed.pipelining.stage import _PipelineStageBase

from wanbed.workloads.schedules.action import Action
from wanbed.workloads.schedules.gpipe import GPipe
from wanbed.workloads.schedules.one_forward_one_backward import OneForwardOneBackward
from wanbed.workloads.schedules.pipeline_shape import PipelineShape, VirtualStages
from wanbed.workloads.schedules.schedule import Schedule
from wanbed.workloads.schedules.virtual.interleaved import InterleavedOneForwardOneBackward
from wanbed.workloads.schedules.virtual.zero_bubble_v import ZeroBubbleV
from wanbed.workloads.schedules.zero_bubble import ZeroBubble

SHAPES = [(stages, microbatches) for stages in (2, 4, 8) for microbatches in range(stages, 4 * stages + 1)]
LETTERS = {"forward": "F", "backward": "B", "backward_input": "I", "backward_weight": "W"}


class Stage(_PipelineStageBase):
    """Torch's stage without a model or a process group: it notes what its schedule has it do."""

    def __init__(self, rank: int, stages: int) -> None:
        self.stage_index = self.group_rank = rank
        self.group_size = self.num_stages = stages
        self.group = None
        self.has_backward = True
        self.submod = None
        self.done: list[str] = []

    def _no_transfers(self, _microbatch: int) -> list[object]:
        return []

    get_fwd_recv_ops = get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = _no_transfers

    def forward_one_chunk(self, microbatch: int, *_: object, **__: object) -> None:
        self.done.append(f"F{microbatch}")

    def backward_one_chunk(self, microbatch: int, *_: object, **__: object) -> None:
        self.done.append(f"B{microbatch}")

    def perform_reduce_grad(self, _factor: int) -> None:
        self.done.append("REDUCE_GRAD")

    def _unused(self, *_: object) -> None:
        raise AssertionError("a schedule's order needs no such thing")

    _prepare_forward_infra = _prepare_backward_infra = _create_grad_recv_info = _unused


def listed(actions: list[object]) -> list[str]:
    """Torch's list without stage numbers, bubbles, and the reduction at its end."""
    texts = [str(action).lstrip("0123456789") for action in actions if action is not None]
    return [text for text in texts if not text.startswith("REDUCE_GRAD")]


def executed(schedule_class: type, rank: int, stages: int, microbatches: int) -> list[str]:
    """What torch's schedule calls, in order, when it runs a step at that stage."""
    stage = Stage(rank, stages)
    schedule = schedule_class(stage, microbatches, loss_fn=lambda *_: 0)
    schedule._initialize_stage = MagicMock()
    targets = [None] * microbatches
    schedule._step_microbatches([()] * microbatches, [{}] * microbatches, targets)
    assert stage.done.pop() == "REDUCE_GRAD"
    return stage.done


def ours(schedule: Schedule, stage: int) -> list[str]:
    return [f"{LETTERS[action.kind]}{action.microbatch}" for action in schedule.order(stage)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("stages", "microbatches"), SHAPES)
def test_gpipe_does_what_torch_lists_and_runs(stages: int, microbatches: int) -> None:
    torch_schedule = torch_schedules.ScheduleGPipe(Stage(0, stages), microbatches, loss_fn=lambda *_: 0)
    lists = torch_schedule._get_pipeline_order()
    schedule = GPipe(PipelineShape(stages, microbatches))
    for rank in range(stages):
        assert ours(schedule, rank) == listed(lists[rank])
        assert ours(schedule, rank) == executed(torch_schedules.ScheduleGPipe, rank, stages, microbatches)


@pytest.mark.parametrize(("stages", "microbatches"), SHAPES)
def test_1f1b_does_what_torch_lists_and_runs(stages: int, microbatches: int) -> None:
    torch_schedule = torch_schedules.Schedule1F1B(Stage(0, stages), microbatches, loss_fn=lambda *_: 0)
    lists = torch_schedule._get_pipeline_order()
    schedule = OneForwardOneBackward(PipelineShape(stages, microbatches))
    for rank in range(stages):
        assert ours(schedule, rank) == executed(torch_schedules.Schedule1F1B, rank, stages, microbatches)
        if rank < stages - 1:
            assert ours(schedule, rank) == listed(lists[rank])


@pytest.mark.parametrize(("stages", "microbatches"), SHAPES)
def test_zb_h1_does_what_torch_lists_with_one_stage_a_rank(stages: int, microbatches: int) -> None:
    torch_schedule = torch_schedules.ScheduleInterleavedZeroBubble([Stage(0, stages)], stages, loss_fn=lambda *_: 0)
    torch_schedule._n_microbatches = microbatches
    schedule = ZeroBubble(PipelineShape(stages, microbatches))
    for rank in range(stages):
        assert ours(schedule, rank) == listed(torch_schedule._calculate_single_rank_operations(rank))


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
@pytest.mark.parametrize("stages", [2, 4, 8])
def test_zb_h1_does_what_torch_would_run_where_torch_takes_the_shape(stages: int, rounds: int) -> None:
    microbatches = rounds * stages
    torch_schedule = torch_schedules.ScheduleInterleavedZeroBubble(
        [Stage(0, stages)], microbatches, loss_fn=lambda *_: 0
    )
    schedule = ZeroBubble(PipelineShape(stages, microbatches))
    for rank in range(stages):
        assert ours(schedule, rank) == listed(torch_schedule.pipeline_order[rank])


def ours_by_virtual_stage(schedule: Schedule, stage: int) -> list[str]:
    """Our list as torch writes its own: virtual stage, computation, microbatch."""
    number = schedule.virtual.number
    order: Sequence[Action] = schedule.order(stage)  # type: ignore[attr-defined]
    return [f"{number(stage, each.chunk)}{LETTERS[each.kind]}{each.microbatch}" for each in order]


def listed_by_virtual_stage(actions: Sequence[object]) -> list[str]:
    return [text for action in actions if action is not None and "REDUCE_GRAD" not in (text := str(action))]


def stages_of_rank_0(virtual: VirtualStages) -> list[Stage]:
    """Torch's stages of rank 0, from which it makes the lists of all ranks."""
    found = []
    for chunk in range(virtual.chunks):
        stage = Stage(0, virtual.stages)
        stage.stage_index, stage.num_stages = virtual.number(0, chunk), virtual.count
        found.append(stage)
    return found


@pytest.mark.parametrize("chunks", [2, 3, 4])
@pytest.mark.parametrize("groups", [1, 2, 3, 5])
@pytest.mark.parametrize("stages", [1, 2, 3, 4, 8])
def test_interleaved_1f1b_does_what_torch_lists(stages: int, groups: int, chunks: int) -> None:
    # Torch also takes numbers of microbatches that S does not divide, in larger groups; Megatron and we do not.
    schedule = InterleavedOneForwardOneBackward(PipelineShape(stages, groups * stages, virtual_stages=chunks))
    torch_schedule = torch_schedules.ScheduleInterleaved1F1B(
        stages_of_rank_0(schedule.virtual), groups * stages, loss_fn=lambda *_: 0
    )
    for rank in range(stages):
        assert ours_by_virtual_stage(schedule, rank) == listed_by_virtual_stage(torch_schedule.pipeline_order[rank])


@pytest.mark.parametrize("microbatches", [1, 2, 3, 5, 8, 15, 16, 24])
@pytest.mark.parametrize("stages", [1, 2, 3, 4, 8])
def test_zb_v_does_what_torch_lists(stages: int, microbatches: int) -> None:
    schedule = ZeroBubbleV(PipelineShape(stages, microbatches, virtual_stages=2))
    torch_schedule = torch_schedules.ScheduleZBVZeroBubble(
        stages_of_rank_0(schedule.virtual), microbatches, loss_fn=lambda *_: 0
    )
    for rank in range(stages):
        assert ours_by_virtual_stage(schedule, rank) == listed_by_virtual_stage(torch_schedule.pipeline_order[rank])
