import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.gpipe import GPipe
from wanbed.workloads.schedules.pipeline_shape import PipelineShape, VirtualLayout, VirtualStages
from wanbed.workloads.schedules.schedule import ScheduleError
from wanbed.workloads.schedules.virtual.interleaved import InterleavedOneForwardOneBackward
from wanbed.workloads.schedules.virtual.zero_bubble_v import ZeroBubbleV


def test_one_value_holds_for_every_stage() -> None:
    shape = PipelineShape(3, 8, recompute=True, memory_bound=4)
    assert [shape.recomputes(stage) for stage in range(3)] == [True] * 3
    assert [shape.most_in_flight(stage) for stage in range(3)] == [4] * 3


def test_stages_may_differ() -> None:
    shape = PipelineShape(2, 8, recompute=(True, False), memory_bound=(9, 1))
    assert [shape.recomputes(stage) for stage in range(2)] == [True, False]
    assert [shape.most_in_flight(stage) for stage in range(2)] == [8, 1]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"stages": 0}, "stages"),
        ({"microbatches": 0}, "microbatches"),
        ({"recompute": (True,)}, "recompute"),
        ({"memory_bound": (1, 2, 3)}, "memory_bound"),
        ({"memory_bound": 0}, "memory_bound"),
        ({"memory_bound": (1, 0)}, "memory_bound"),
    ],
)
def test_an_invalid_shape_is_refused_by_field(arguments: dict[str, object], field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        PipelineShape(**{"stages": 2, "microbatches": 4, **arguments})  # type: ignore[arg-type]


def test_looped_stages_follow_one_another_round_and_round() -> None:
    virtual = VirtualStages(3, 2)
    assert [virtual.place(number) for number in range(6)] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]


def test_v_shaped_stages_turn_at_the_last_stage() -> None:
    virtual = VirtualStages(3, 2, VirtualLayout.V_SHAPED)
    assert [virtual.place(number) for number in range(6)] == [(0, 0), (1, 0), (2, 0), (2, 1), (1, 1), (0, 1)]


@given(st.integers(1, 9), st.integers(1, 5), st.sampled_from(VirtualLayout))
def test_every_virtual_stage_has_one_place(stages: int, chunks: int, layout: VirtualLayout) -> None:
    virtual = VirtualStages(stages, chunks, layout)
    places = [virtual.place(number) for number in range(virtual.count)]
    assert sorted(places) == [(stage, chunk) for stage in range(stages) for chunk in range(chunks)]
    assert [virtual.number(*place) for place in places] == list(range(virtual.count))


def test_the_last_stage_sends_its_first_chunk_round_to_the_first_stage() -> None:
    schedule = InterleavedOneForwardOneBackward(PipelineShape(3, 3, virtual_stages=2))
    to_first = 0, Message(MessageKind.ACTIVATION, 1, chunk=1)
    assert schedule.sends(2, Action(ActionKind.FORWARD, 1, 0)) == to_first
    assert schedule.sends(2, Action(ActionKind.FORWARD, 1, 1)) is None
    to_last = 2, Message(MessageKind.GRADIENT, 1, chunk=0)
    assert schedule.sends(0, Action(ActionKind.BACKWARD, 1, 1)) == to_last
    assert schedule.sends(0, Action(ActionKind.BACKWARD, 1, 0)) is None


def test_the_turn_of_the_v_stays_on_the_last_stage() -> None:
    schedule = ZeroBubbleV(PipelineShape(3, 1, virtual_stages=2))
    assert schedule.sends(2, Action(ActionKind.FORWARD, 0, 0)) == (2, Message(MessageKind.ACTIVATION, 0, chunk=1))
    assert schedule.sends(2, Action(ActionKind.BACKWARD_INPUT, 0, 1)) == (2, Message(MessageKind.GRADIENT, 0, chunk=0))
    assert schedule.sends(1, Action(ActionKind.FORWARD, 0, 1)) == (0, Message(MessageKind.ACTIVATION, 0, chunk=1))
    assert schedule.sends(0, Action(ActionKind.FORWARD, 0, 1)) is None


def test_a_message_for_a_chunk_that_takes_none_is_refused() -> None:
    schedule = ZeroBubbleV(PipelineShape(2, 1, virtual_stages=2))
    for stage, message in (
        (0, Message(MessageKind.ACTIVATION, 0, chunk=0)),
        (0, Message(MessageKind.GRADIENT, 0, chunk=1)),
        (1, Message(MessageKind.ACTIVATION, 0, chunk=2)),
    ):
        with pytest.raises(ScheduleError, match="expects no"):
            schedule.arrived(stage, message)


def test_a_schedule_without_virtual_stages_refuses_them() -> None:
    with pytest.raises(ValueError, match="virtual_stages: GPipe has none"):
        GPipe(PipelineShape(2, 2, virtual_stages=2))
    with pytest.raises(ValueError, match="virtual_stages: 0 is below 1"):
        PipelineShape(2, 2, virtual_stages=0)
