from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS
from wanbed.workloads.profiles.compute_profile import MeasuredProfile
from wanbed.workloads.profiles.model_parts import (
    host_bytes,
    model_times,
    product_bytes,
    prompt_bytes,
    stage_bytes,
    stages_to_measure,
)

TINY = GptConfig(layers=4, hidden=128, context=128, heads=4, vocabulary=256)

ACTIONS = ("forward", "recompute", "backward", "backward_input", "backward_weight", "optimizer")


def figures(base_ns: int) -> Mapping[str, Sequence[int]]:
    """Seven repeats of each action, whose medians differ from action to action."""
    return {action: [base_ns * (place + 1) + each for each in range(-3, 4)] for place, action in enumerate(ACTIONS)}


def profile_of(layers: int, *bases_ns: int) -> MeasuredProfile:
    stages = [
        stage.measured(figures(base_ns))
        for stage, base_ns in zip(stages_to_measure(TINY, layers), bases_ns, strict=True)
    ]
    return MeasuredProfile(
        title="t",
        basis="measured",
        device="d",
        precision="fp32",
        source=({"figures": "all", "origin": "made up"},),  # type: ignore[arg-type]
        models=(model_times(TINY, stages),),
    )


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_stages_to_measure_have_as_many_layers_each_and_the_models_own_dimensions(layers: int) -> None:
    stages = stages_to_measure(TINY, layers)
    assert [(stage.position, stage.layers) for stage in stages] == [
        ("first", layers),
        ("middle", layers),
        ("last", layers),
    ]
    assert {(stage.config.hidden, stage.config.context, stage.config.vocabulary) for stage in stages} == {
        (128, 128, 256)
    }


@given(
    layers=st.integers(1, 6),
    middle_ns=st.integers(1_000, 10**9),
    embedding_ns=st.integers(0, 10**9),
    head_ns=st.integers(0, 10**9),
)
def test_a_model_cut_as_it_was_measured_takes_what_was_measured(
    layers: int, middle_ns: int, embedding_ns: int, head_ns: int
) -> None:
    bases_ns = middle_ns + embedding_ns, middle_ns, middle_ns + head_ns
    profile = profile_of(layers, *bases_ns)
    cut = GptConfig(layers=3 * layers, hidden=128, context=128, heads=4, vocabulary=256)
    for base_ns, times in zip(bases_ns, profile.stage_times(cut, 3), strict=True):
        for place, action in enumerate(ACTIONS):
            assert abs(getattr(times, f"{action}_ns") - base_ns * (place + 1)) <= layers


def test_an_end_that_takes_less_than_the_middle_adds_nothing() -> None:
    (model,) = profile_of(1, 900, 1_000, 1_100).models
    assert set(model.embedding.model_dump().values()) == {0}
    assert model.head.forward_ns == 100


def test_a_profile_keeps_what_it_was_taken_from() -> None:
    (model,) = profile_of(2, 3_000, 2_000, 5_000).models
    assert [stage.forward.median_ns for stage in model.stages] == [3_000, 2_000, 5_000]
    assert [stage.forward.repeats_ns for stage in model.stages][1] == tuple(range(1_997, 2_004))
    # Forward, recompute and backward are 1, 2 and 3 times as long here, and 4 times the forward's operations.
    assert model.stages[1].flops_per_s == pytest.approx(4 * model.stages[1].forward_flops / 12_000e-9)


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
