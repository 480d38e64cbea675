"""All microbatches pass one group after the other."""

import pytest

from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.group_by_group import GroupByGroup
from wanbed.workloads.schedules.pipeline_shape import PipelineShape


def test_forwards_go_from_the_first_group_to_the_last_and_backwards_back() -> None:
    schedule = GroupByGroup(PipelineShape(1, 2, recompute=True, virtual_stages=3))
    performed = []
    while not schedule.complete(0):
        action = schedule.next(0)
        assert action is not None
        schedule.finished(0, action)
        if (sends := schedule.sends(0, action)) is not None:
            schedule.arrived(*sends)
        performed.append((action.kind, action.chunk, action.microbatch))
    forwards = [(ActionKind.FORWARD, group, microbatch) for group in range(3) for microbatch in range(2)]
    backwards = [
        (kind, group, microbatch)
        for group in (2, 1, 0)
        for microbatch in range(2)
        for kind in (ActionKind.RECOMPUTE, ActionKind.BACKWARD)
    ]
    assert performed == forwards + backwards


def test_several_stages_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^stages: 2, and groups pass through a single one"):
        GroupByGroup(PipelineShape(2, 2))
