"""The message that the next action of a fixed order waits for."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.fixed_order import FixedOrder
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.registry import schedule_by_name

ACTIVATION, GRADIENT = MessageKind.ACTIVATION, MessageKind.GRADIENT


def fixed(name: str, shape: PipelineShape) -> FixedOrder:
    found = schedule_by_name(name, shape)
    assert isinstance(found, FixedOrder)
    return found


def test_it_is_that_of_the_next_action_alone() -> None:
    schedule = fixed("gpipe", PipelineShape(2, 2))
    assert schedule.next(1) is None
    assert schedule.awaited(1) == (0, Message(ACTIVATION, 0))
    schedule.arrived(1, Message(ACTIVATION, 1))
    assert schedule.awaited(1) == (0, Message(ACTIVATION, 0)), "its turn has not come"
    schedule.arrived(1, Message(ACTIVATION, 0))
    assert schedule.awaited(1) is None
    action = schedule.next(1)
    assert action is not None
    assert schedule.awaited(1) is None, "it is running"
    schedule.finished(1, action)
    assert schedule.awaited(1) is None, "it is there"


def test_a_stage_awaits_nothing_before_its_first_and_after_its_last_action() -> None:
    schedule = fixed("gpipe", PipelineShape(1, 1))
    assert schedule.awaited(0) is None
    for _ in range(2):
        action = schedule.next(0)
        assert action is not None
        schedule.finished(0, action)
    assert schedule.awaited(0) is None


def test_a_recompute_awaits_its_gradient() -> None:
    schedule = fixed("gpipe", PipelineShape(2, 1, recompute=True))
    action = schedule.next(0)
    assert action is not None
    schedule.finished(0, action)
    assert schedule.next(0) is None
    assert schedule.upcoming(0) == schedule.open_actions(0)[0]
    assert schedule.open_actions(0)[0].kind is ActionKind.RECOMPUTE
    assert schedule.awaited(0) == (1, Message(GRADIENT, 0))


NAMES: Mapping[str, dict[str, Any]] = {
    "gpipe": {},
    "1f1b": {},
    "eager-1f1b": {},
    "zb-h1": {},
    "interleaved-1f1b": {"virtual_stages": 2},
    "zb-v": {"virtual_stages": 2},
}


@pytest.mark.parametrize("name", NAMES)
@given(st.integers(2, 4), st.integers(1, 3), st.booleans())
@settings(max_examples=15, deadline=None)
def test_whoever_sends_only_what_is_awaited_runs_all_actions(
    name: str, stages: int, rounds: int, recompute: bool
) -> None:
    schedule = fixed(name, PipelineShape(stages, rounds * stages, recompute=recompute, **NAMES[name]))
    made: set[tuple[int, Message]] = set()
    moved, exchanged = True, 0
    while moved:
        moved = False
        for stage in range(stages):
            action = schedule.next(stage)
            if action is not None:
                schedule.finished(stage, action)
                sends = schedule.sends(stage, action)
                if sends is not None and sends[0] == stage:
                    schedule.arrived(*sends)
                elif sends is not None:
                    made.add(sends)
                moved = True
            elif (awaited := schedule.awaited(stage)) is not None and (stage, awaited[1]) in made:
                made.remove((stage, awaited[1]))
                schedule.arrived(stage, awaited[1])
                exchanged, moved = exchanged + 1, True
    assert all(schedule.complete(stage) for stage in range(stages))
    assert not made
    assert exchanged
