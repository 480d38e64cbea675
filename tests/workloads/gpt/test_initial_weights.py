import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from wanbed.workloads.gpt import initial_weights
from wanbed.workloads.gpt.initial_weights import NormalWeights, draw_weights, undrawn_embedding, undrawn_module

BLOCK = initial_weights._BLOCK_VALUES

GROUP = initial_weights._GROUP_VALUES

SEED = 7


class Away(Tensor):
    """A tensor that says it is not in the CPU's memory."""

    is_cpu = False


def named(counts: list[int], dtype: torch.dtype = torch.float32) -> list[NormalWeights]:
    return [NormalWeights(f"layers.{count}.weight", torch.empty(count, dtype=dtype), 0.02) for count in counts]


def drawn_at_once(weights: NormalWeights) -> Tensor:
    """The values that a single call of torch draws, rounded."""
    generator = initial_weights._generator_of(SEED, weights.name)
    exact = torch.empty(weights.tensor.shape, dtype=torch.float32)
    return exact.normal_(0, weights.deviation, generator=generator).to(weights.tensor.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "count",
    [1, GROUP - 1, GROUP, GROUP + 1, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + GROUP - 1, BLOCK + GROUP, 3 * BLOCK + 7],
)
def test_values_drawn_block_by_block_are_those_drawn_at_once(count: int, dtype: torch.dtype) -> None:
    (weights,) = named([count], dtype)
    draw_weights([weights], SEED)
    assert torch.equal(weights.tensor, drawn_at_once(weights))


@pytest.mark.parametrize("cores", [1, 2, 7])
def test_the_number_of_cores_changes_no_bit(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    weights = named([300, 5, BLOCK + 3, 40, 1000])
    draw_weights(weights, SEED)
    for each in weights:
        assert torch.equal(each.tensor, drawn_at_once(each))


def test_weights_of_another_device_are_drawn_in_the_cpus_memory_a_batch_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches: list[int] = []
    beside = initial_weights._beside

    def counted(weights: NormalWeights) -> NormalWeights:
        batches.append(weights.tensor.numel())
        return beside(weights)

    monkeypatch.setattr(initial_weights, "_BATCH_VALUES", 100)
    monkeypatch.setattr(initial_weights, "_beside", counted)
    here = named([60, 30, 50, 400, 20])
    away = [each._replace(tensor=each.tensor.as_subclass(Away)) for each in here]
    assert [sum(each.tensor.numel() for each in batch) for batch in initial_weights._batches(away)] == [90, 50, 400, 20]
    draw_weights(away, SEED)
    assert batches == [60, 30, 50, 400, 20]
    for each in here:
        assert torch.equal(each.tensor, drawn_at_once(each))


BUILDS = {
    "training": "from wanbed.workloads.gpt.gpt_stage import build_stage\n"
    "from wanbed.workloads.gpt.gpt_config import GptConfig\n"
    "build_stage(GptConfig(2, 16, 8, 2, 32), 0, 1, 0, torch.bfloat16)\n",
    "inference": "from wanbed.workloads.inference.llama_layers import build_layers\n"
    "from wanbed.workloads.inference.inference_model import INFERENCE_MODELS\n"
    "build_layers(INFERENCE_MODELS['llama-tiny'], range(8), seed=0, dtype=torch.float32, device=torch.device('cpu'))\n",
}


def test_memory_has_the_asked_precision_and_gradients_stay_as_they_were_built() -> None:
    module = undrawn_module(
        lambda: nn.Sequential(undrawn_embedding(4, 3), nn.LayerNorm(3).requires_grad_(False)),
        torch.bfloat16,
        torch.device("cpu"),
    )
    found = {name: (each.dtype, each.device.type, each.requires_grad) for name, each in module.named_parameters()}
    assert found == {
        "0.weight": (torch.bfloat16, "cpu", True),
        "1.weight": (torch.bfloat16, "cpu", False),
        "1.bias": (torch.bfloat16, "cpu", False),
    }


@pytest.mark.parametrize("what", BUILDS)
def test_building_a_model_loads_neither_torchs_compiler_nor_sympy(what: str) -> None:
    program = (
        f"import sys, torch\n{BUILDS[what]}print([name for name in ('torch._dynamo', 'sympy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
