import pytest

from wanbed.workloads.inference.inference_model import INFERENCE_MODELS
from wanbed.workloads.model.gpt_config import GptConfig
from wanbed.workloads.profiling.memory_need import host_bytes, product_bytes, prompt_bytes, stage_bytes

GPT_B = GptConfig(layers=6, hidden=8192, context=6144, heads=64, vocabulary=50_304)
LLAMA = INFERENCE_MODELS["llama-8b"]


@pytest.mark.parametrize(("precision", "per_parameter"), [("fp32", 16), ("bf16", 20)])
def test_a_stage_takes_more_than_its_weights_gradients_and_moments(precision: str, per_parameter: int) -> None:
    for stage in range(3):
        parameters = GPT_B.parameters(stage, 3)
        assert parameters * per_parameter < stage_bytes(GPT_B, stage, 3, precision) < parameters * per_parameter * 1.8


def test_the_last_stage_also_holds_logits() -> None:
    logits = GPT_B.context * GPT_B.vocabulary * 4
    assert stage_bytes(GPT_B, 2, 3, "fp32") - stage_bytes(GPT_B, 1, 3, "fp32") > 3 * logits


def test_a_stage_for_a_gpu_is_made_in_less_memory_of_the_cpu_than_it_takes_there() -> None:
    for stage in range(3):
        assert (
            2 * GPT_B.parameters(stage, 3) < host_bytes(GPT_B, stage, 3, "bf16") < stage_bytes(GPT_B, stage, 3, "bf16")
        )


def test_a_longer_prompt_and_more_layers_take_more() -> None:
    assert (
        prompt_bytes(LLAMA, 32, 8192) > prompt_bytes(LLAMA, 32, 128) > LLAMA.weight_bytes(32, embedding=True, head=True)
    )
    assert prompt_bytes(LLAMA, 2, 128) < prompt_bytes(LLAMA, 32, 128) / 4


def test_a_product_takes_three_matrices() -> None:
    assert 3 * 2 * 4096**2 < product_bytes(4096, "bf16") < 20 * 4096**2
