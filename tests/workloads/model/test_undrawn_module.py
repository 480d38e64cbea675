import subprocess
import sys

import pytest
import torch
from torch import nn

from wanbed.workloads.model.undrawn_module import undrawn_embedding, undrawn_module

BUILDS = {
    "training": "from wanbed.workloads.model.gpt_stage import build_stage\n"
    "from wanbed.workloads.model.gpt_config import GptConfig\n"
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
