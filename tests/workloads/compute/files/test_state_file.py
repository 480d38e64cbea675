"""The state of a training goes on from files, however the stages are cut afterwards."""

from pathlib import Path

import pytest
import torch

from workloads.compute.files.state_file import load_state, save_state
from workloads.compute.flat_parameters import FlatParameters
from workloads.model.gpt_config import GptConfig
from workloads.model.gpt_stage import build_stage

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
