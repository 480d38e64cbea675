"""The memory that a stage is predicted to take is the memory that torch takes for it, on the CPU."""

from collections.abc import Iterator
from itertools import accumulate

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from tests.support.workloads.changed import changed
from tests.support.workloads.one_thread import one_thread
from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.device_settings import TrainingDevice
from wanbed.workloads.compute.torch_compute import TorchCompute
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.profiles.model_parts import training_memory
from wanbed.workloads.schedules.action import Action, ActionKind

_one_thread = pytest.fixture(autouse=True, scope="module")(one_thread)

STAGES = 3
MODEL = GptConfig(layers=12, hidden=64, context=256, heads=4, vocabulary=512)
WORK = TorchWork(
    ComputedStage(stages=STAGES, stage=0, pipelines=1, pipeline=0, microbatches=1),
    LearningConfig(MODEL, 1e-3, "fp32", seed=3),
    TrainingDevice("cpu"),
)


def actions(held: int, *, recompute: bool, split: bool) -> Iterator[Action]:
    """Forwards of all microbatches first, then their backwards, the weight parts last: as much is held as can be."""
    yield from (Action(ActionKind.FORWARD, microbatch) for microbatch in range(held))
    for microbatch in range(held):
        if recompute:
            yield Action(ActionKind.RECOMPUTE, microbatch)
        yield Action(ActionKind.BACKWARD_INPUT if split else ActionKind.BACKWARD, microbatch)
    if split:
        yield from (Action(ActionKind.BACKWARD_WEIGHT, microbatch) for microbatch in range(held))


def most_bytes(stage: int, held: int, *, recompute: bool, split: bool, precision: str) -> int:
    """The most that torch allocates at once while it trains a stage, received payloads included, before the update."""
    compute = TorchCompute(
        changed(WORK, stage=stage, microbatches=held, recompute=recompute, split_backward=split, precision=precision),
        lambda payload: given.pop(payload.obj.__array_interface__["data"][0]),  # type: ignore[attr-defined]
    )
    given: dict[int, torch.Tensor] = {}

    def receive(kind: MessageKind, microbatch: int) -> None:
        payload = torch.zeros(MODEL.activation_bytes(precision), dtype=torch.uint8)
        given[payload.data_ptr()] = payload
        compute.arrived(Message(kind, microbatch), memoryview(payload.numpy()))

    def train() -> None:
        compute.begin(0)
        for action in actions(held, recompute=recompute, split=split):
            backward = action.kind in (ActionKind.BACKWARD, ActionKind.BACKWARD_INPUT)
            if action.kind is ActionKind.FORWARD and stage:
                receive(MessageKind.ACTIVATION, action.microbatch)
            if backward and stage < STAGES - 1:
                receive(MessageKind.GRADIENT, action.microbatch)
            compute.perform(action)
            if action.kind is ActionKind.FORWARD and stage < STAGES - 1:
                compute.sent(Message(MessageKind.ACTIVATION, action.microbatch))
            if backward and stage:
                compute.sent(Message(MessageKind.GRADIENT, action.microbatch))

    train()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        train()
    assert watched.profiler is not None
    events = [each for each in watched.profiler.kineto_results.events() if each.name() == "[memory]"]
    return max(accumulate(each.nbytes() for each in sorted(events, key=lambda each: each.start_ns())))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("held", [1, 4])
@pytest.mark.parametrize(("recompute", "split"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("stage", range(STAGES))
def test_activations_take_what_is_predicted(
    stage: int, recompute: bool, split: bool, held: int, precision: str
) -> None:
    measured_bytes = most_bytes(stage, held, recompute=recompute, split=split, precision=precision)
    predicted = training_memory(
        MODEL, stage, STAGES, precision, in_flight=held, recompute=recompute, splits=split
    ).activation_bytes
    assert measured_bytes == pytest.approx(predicted, rel=0.05)
