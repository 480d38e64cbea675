"""Stages that encode what they exchange train as one process does that encodes at the same boundaries."""

from functools import cache

import pytest

from tests.support.workloads.changed import changed
from tests.support.workloads.encoded_reference import train_encoded_reference
from tests.support.workloads.reference_training import ReferenceTraining, relative_error
from tests.workloads.compute.hand_driven import train_by_hand
from wanbed.workloads.compute.activation_wire import ActivationWire, EncodedBoundaries
from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.device_settings import TrainingDevice
from wanbed.workloads.compute.torch_compute import TorchCompute
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.synchronization.synchronization import WireFormat

TINY = GptConfig(layers=4, hidden=64, context=64, heads=4, vocabulary=256)
STAGES, MICROBATCHES, ITERATIONS, SEED, LEARNING_RATE = 3, 3, 3, 3, 1e-15
"""With this rate weights stay as they are. Those of two trainings that differ by rounding, as AdamW's do over flat and
over single parameters, may be encoded as other numbers, whose difference is that of a step of the format."""
BOUNDARIES = (0, 1)
WORK = TorchWork(
    ComputedStage(stages=STAGES, stage=0, pipelines=1, pipeline=0, microbatches=MICROBATCHES),
    LearningConfig(TINY, LEARNING_RATE, "fp32", SEED),
    TrainingDevice("cpu"),
)
WIRES = {
    "bf16": ActivationWire(WireFormat.BF16),
    "int8": ActivationWire(WireFormat.INT8),
    "int8 fed back": ActivationWire(WireFormat.INT8, error_feedback=True),
    "topk": ActivationWire(WireFormat.BF16, 102),
    "topk fed back": ActivationWire(WireFormat.BF16, 102, error_feedback=True),
}


@cache
def reference(
    wire: str, boundaries: tuple[int, ...] = BOUNDARIES, learning_rate: float = LEARNING_RATE
) -> ReferenceTraining:
    return train_encoded_reference(
        TINY,
        WIRES[wire],
        parts=STAGES,
        boundaries=boundaries,
        pipelines=1,
        microbatches=MICROBATCHES,
        iterations=ITERATIONS,
        seed=SEED,
        learning_rate=learning_rate,
    )


@pytest.mark.parametrize("boundaries", [(0, 1), (1,)])
@pytest.mark.parametrize("wire", WIRES)
def test_stages_train_as_one_process_that_encodes_at_the_same_boundaries(
    wire: str, boundaries: tuple[int, ...]
) -> None:
    work = changed(WORK, encoded=EncodedBoundaries(WIRES[wire], boundaries))
    expected = reference(wire, boundaries)
    found = train_by_hand(work, ITERATIONS)
    assert found.losses == pytest.approx(expected.losses, rel=1e-6)
    assert relative_error(found.gradients, expected.gradients) <= 1e-5


@pytest.mark.parametrize("changes", [{"recompute": True}, {"split_backward": True}], ids=["recompute", "split"])
@pytest.mark.parametrize("wire", ["int8", "topk fed back"])
def test_recomputes_and_split_backwards_take_what_was_decoded(wire: str, changes: dict[str, bool]) -> None:
    work = changed(WORK, encoded=EncodedBoundaries(WIRES[wire], BOUNDARIES), **changes)
    expected = reference(wire)
    found = train_by_hand(work, ITERATIONS)
    assert found.losses == pytest.approx(expected.losses, rel=1e-6)
    assert relative_error(found.gradients, expected.gradients) <= 1e-5


@pytest.mark.parametrize("wire", WIRES)
def test_losses_follow_those_of_one_process_while_weights_move(wire: str) -> None:
    work = changed(WORK, encoded=EncodedBoundaries(WIRES[wire], BOUNDARIES), learning_rate=1e-3)
    losses = train_by_hand(work, ITERATIONS).losses
    assert losses == pytest.approx(reference(wire, learning_rate=1e-3).losses, rel=1e-5)


def test_what_is_encoded_changes_the_gradients() -> None:
    plain = train_by_hand(WORK, ITERATIONS)
    for wire, least in (("bf16", 1e-4), ("int8", 1e-3), ("topk", 0.1)):
        assert relative_error(reference(wire).gradients, plain.gradients) > least
    assert relative_error(reference("topk").gradients, reference("topk fed back").gradients) > 0.1


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_message_has_its_size_on_the_wire_and_is_released_when_it_is_decoded(precision: str) -> None:
    wire = WIRES["topk"]
    released: list[memoryview] = []
    work = changed(WORK, stages=2, stage=1, precision=precision, encoded=EncodedBoundaries(wire, (0,)))
    compute = TorchCompute(work, released.append)
    size_bytes = wire.encoded_bytes(TINY.context * TINY.hidden)
    payload = memoryview(bytearray(size_bytes))
    compute.begin(0)
    compute.arrived(Message(MessageKind.ACTIVATION, 0), payload)
    assert released == []
    compute.perform(Action(ActionKind.FORWARD, 0))
    assert [each is payload for each in released] == [True]
    compute.perform(Action(ActionKind.BACKWARD, 0))
    assert compute.outgoing(Message(MessageKind.GRADIENT, 0)).nbytes == size_bytes
    assert len(released) == 1
