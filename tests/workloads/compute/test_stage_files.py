"""The state of a training goes on from files, however the stages are cut afterwards."""

from pathlib import Path

import pytest
import torch

from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.device_settings import TrainingDevice
from wanbed.workloads.compute.flat_parameters import FlatParameters
from wanbed.workloads.compute.stage_files import load_state, save_state
from wanbed.workloads.compute.torch_compute import TorchCompute
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.gpt_stage import build_stage
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind

LOSSES = 1e-5

CONFIG = GptConfig(layers=3, hidden=8, heads=2, context=4, vocabulary=16)


def stages(count: int, dtype: torch.dtype) -> list[FlatParameters]:
    return [FlatParameters(build_stage(CONFIG, stage, count, 1, dtype), 0.01) for stage in range(count)]


def trained(parameters: list[FlatParameters], step: int) -> None:
    """One step with gradients that follow from the parameters' names, so that they do not depend on the cut."""
    for stage in parameters:
        for name, gradient in stage.named_gradients():
            generator = torch.Generator().manual_seed(hash((name, step)) % 2**31)
            gradient.copy_(torch.randn(gradient.shape, generator=generator))
        stage.update()


def weights(parameters: list[FlatParameters]) -> dict[str, torch.Tensor]:
    return {name: state[0].clone() for stage in parameters for name, state in stage.named_state()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_goes_on_as_if_nothing_had_happened_on_fewer_stages(dtype: torch.dtype, tmp_path: Path) -> None:
    undisturbed = stages(3, dtype)
    for step in range(3):
        trained(undisturbed, step)
    files = [tmp_path / f"stage-{number}" for number in range(3)]
    for path, stage in zip(files, undisturbed, strict=True):
        save_state(path, stage)
    restored = stages(2, dtype)
    for stage in restored:
        load_state(files, stage)
        assert stage.steps == 3
    for step in range(3, 5):
        trained(undisturbed, step)
        trained(restored, step)
    expected = weights(undisturbed)
    for name, values in weights(restored).items():
        assert torch.equal(values, expected[name]), name


def test_a_checkpoint_that_lacks_a_parameter_is_refused(tmp_path: Path) -> None:
    first, second = stages(2, torch.float32)
    save_state(tmp_path / "stage-0", first)
    with pytest.raises(ValueError, match="the checkpoint has no "):
        load_state([tmp_path / "stage-0"], second)


def computing(count: int) -> list[TorchCompute]:
    return [
        TorchCompute(
            TorchWork(
                ComputedStage(stages=count, stage=stage, pipelines=1, pipeline=0, microbatches=2),
                LearningConfig(CONFIG, 0.01, "fp32", seed=1),
                TrainingDevice("cpu"),
            ),
            lambda payload: None,
        )
        for stage in range(count)
    ]


def hand_on(sender: TorchCompute, receiver: TorchCompute, message: Message) -> None:
    content = sender.outgoing(message)
    receiver.arrived(message, memoryview(bytearray(content)))
    sender.sent(message)


def loss_of_iteration(stages: list[TorchCompute], iteration: int) -> float:
    for stage in stages:
        stage.begin(iteration)
    for microbatch in range(2):
        for number, stage in enumerate(stages):
            stage.perform(Action(ActionKind.FORWARD, microbatch))
            if stage is not stages[-1]:
                hand_on(stage, stages[number + 1], Message(MessageKind.ACTIVATION, microbatch))
        for number, stage in reversed(list(enumerate(stages))):
            stage.perform(Action(ActionKind.BACKWARD, microbatch))
            if number:
                hand_on(stage, stages[number - 1], Message(MessageKind.GRADIENT, microbatch))
    for stage in stages:
        stage.update()
    loss = stages[-1].loss()
    assert loss is not None
    return loss


@pytest.mark.parametrize("left", [1, 2, 3])
def test_losses_go_on_as_if_nothing_had_happened_on_the_stages_that_are_left(left: int, tmp_path: Path) -> None:
    undisturbed, before = computing(3), computing(3)
    expected = [loss_of_iteration(undisturbed, iteration) for iteration in range(6)]
    for iteration in range(3):
        loss_of_iteration(before, iteration)
    files = [tmp_path / f"stage-{number}" for number in range(3)]
    for path, stage in zip(files, before, strict=True):
        save_state(path, stage.parameters)
    after = computing(left)
    for stage in after:
        load_state(files, stage.parameters)
    found = [loss_of_iteration(after, iteration) for iteration in range(3, 6)]
    assert found == pytest.approx(expected[3:], rel=LOSSES)
