from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.gpt.gpt_config import Architecture, GptConfig

GPT_A = GptConfig(layers=12, hidden=4096, context=4096, heads=32, vocabulary=50_304)


def cuts() -> st.SearchStrategy[tuple[int, int]]:
    return st.integers(1, 40).flatmap(lambda layers: st.tuples(st.just(layers), st.integers(1, layers)))


def with_layers(layers: int) -> GptConfig:
    return GptConfig(layers=layers, hidden=8, context=4, heads=2, vocabulary=11)


PUBLISHED = {
    "GPT-2": (GptConfig(12, 768, 1024, 12, 50257, Architecture.GPT_2, tied_head=True), 124_439_808),
    "GPT-2 XL": (GptConfig(48, 1600, 1024, 25, 50257, Architecture.GPT_2, tied_head=True), 1_557_611_200),
    "Llama 2 7B": (GptConfig(32, 4096, 4096, 32, 32000, Architecture.LLAMA, feed_forward=11008), 6_738_415_616),
    "Mistral 7B": (GptConfig(32, 4096, 8192, 32, 32000, Architecture.LLAMA, 8, 14336), 7_241_732_096),
    "Llama 3 8B": (GptConfig(32, 4096, 8192, 32, 128256, Architecture.LLAMA, 8, 14336), 8_030_261_248),
    "Llama 3 70B": (GptConfig(80, 8192, 8192, 64, 128256, Architecture.LLAMA, 8, 28672), 70_553_706_496),
}
"""Models and their numbers of parameters, as their makers publish them with the weights."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_has_its_published_parameters(name: str) -> None:
    config, parameters = PUBLISHED[name]
    assert config.parameters(0, 1) == parameters


def test_a_tied_head_at_a_stage_of_its_own_is_a_copy_of_the_embedding() -> None:
    config, parameters = PUBLISHED["GPT-2"]
    assert config.parameters(0, 2) + config.parameters(1, 2) == parameters + 50257 * 768


def test_operations_follow_the_matrices() -> None:
    whole = GptConfig(1, 8, 4, 4, 11, Architecture.LLAMA, kv_heads=2, feed_forward=20)
    matrices = 8 * 8 + 2 * 8 * 4 + 8 * 8 + 3 * 8 * 20
    assert whole.forward_flops(0, 1) == 4 * (2 * matrices + 2 * 8 * 11) + 4 * 4 * 4 * 8


def test_torch_trains_the_plain_model_however_it_is_written() -> None:
    assert GptConfig(1, 8, 4, 4, 11).trains_in_torch
    assert GptConfig(1, 8, 4, 4, 11, Architecture.GPT, kv_heads=4, feed_forward=32).trains_in_torch
    for other in (
        GptConfig(1, 8, 4, 4, 11, Architecture.GPT_2),
        GptConfig(1, 8, 4, 4, 11, Architecture.LLAMA),
        GptConfig(1, 8, 4, 4, 11, kv_heads=2),
        GptConfig(1, 8, 4, 4, 11, feed_forward=31),
        GptConfig(1, 8, 4, 4, 11, tied_head=True),
    ):
        assert not other.trains_in_torch


@given(cut=cuts())
def test_stages_share_the_layers_evenly_and_in_order(cut: tuple[int, int]) -> None:
    layers, stages = cut
    shares = [with_layers(layers).layers_of(stage, stages) for stage in range(stages)]
    assert [layer for share in shares for layer in share] == list(range(layers))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_stages_have_the_layers_of_their_cut_and_other_divisions_are_even(cut: list[int]) -> None:
    layers = sum(cut)
    config = replace(with_layers(layers), cut=tuple(cut))
    shares = [config.layers_of(stage, len(cut)) for stage in range(len(cut))]
    assert [len(share) for share in shares] == cut
    assert [layer for share in shares for layer in share] == list(range(layers))
    assert sum(config.parameters(stage, len(cut)) for stage in range(len(cut))) == config.parameters(0, 1)
    if layers > len(cut):
        stages = len(cut) + 1
        assert [config.layers_of(stage, stages) for stage in range(stages)] == [
            with_layers(layers).layers_of(stage, stages) for stage in range(stages)
        ]


@pytest.mark.parametrize("cut", [(), (1, 2), (4, 0), (5, -1)])
def test_a_cut_that_does_not_make_the_model_is_refused(cut: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^cut: "):
        replace(with_layers(4), cut=cut)


@given(cut=cuts(), architecture=st.sampled_from(Architecture), kv_heads=st.sampled_from([None, 1, 2]))
def test_a_cut_model_has_the_parameters_and_operations_of_the_whole(
    cut: tuple[int, int], architecture: Architecture, kv_heads: int | None
) -> None:
    layers, stages = cut
    config = replace(with_layers(layers), architecture=architecture, kv_heads=kv_heads)
    assert sum(config.parameters(stage, stages) for stage in range(stages)) == config.parameters(0, 1)
    assert sum(config.forward_flops(stage, stages) for stage in range(stages)) == config.forward_flops(0, 1)


def test_operations_of_a_model_agree_with_megatrons_closed_form() -> None:
    sequences, tokens, hidden = 3, GPT_A.context, GPT_A.hidden
    factor = 1 + tokens / (6 * hidden)
    layers = 24 * sequences * tokens * GPT_A.layers * hidden**2 * factor
    head = 2 * sequences * tokens * hidden * GPT_A.vocabulary
    assert GPT_A.forward_flops(0, 1, sequences) == pytest.approx(layers + head, rel=1e-12)


def test_a_causal_kernel_skips_half_of_attention() -> None:
    attention = 4 * GPT_A.context**2 * GPT_A.hidden * GPT_A.layers
    assert GPT_A.forward_flops(0, 1) - GPT_A.causal_forward_flops(0, 1) == attention // 2
    assert sum(GPT_A.causal_forward_flops(stage, 6) for stage in range(6)) == GPT_A.causal_forward_flops(0, 1)


@pytest.mark.parametrize(("precision", "mib"), [("bf16", 32), ("fp32", 64)])
def test_an_activation_is_context_times_hidden_elements(precision: str, mib: int) -> None:
    assert GPT_A.activation_bytes(precision) == mib * 2**20


def test_gradients_have_an_element_for_each_parameter() -> None:
    assert GPT_A.gradient_bytes(1, 6, "bf16") == 2 * GPT_A.parameters(1, 6)
    assert GPT_A.gradient_bytes(1, 6, "fp32") == 4 * GPT_A.parameters(1, 6)


@pytest.mark.parametrize("field", ["layers", "hidden", "context", "heads", "vocabulary", "kv_heads", "feed_forward"])
def test_a_dimension_below_one_is_refused_by_name(field: str) -> None:
    numbers: dict[str, Any] = {"layers": 2, "hidden": 8, "context": 4, "heads": 2, "vocabulary": 11, field: 0}
    with pytest.raises(ValueError, match=rf"^{field}: 0 is below 1$"):
        GptConfig(**numbers)


def test_heads_must_share_the_hidden_size() -> None:
    with pytest.raises(ValueError, match=r"^heads: 3 heads do not share a hidden size of 8 evenly"):
        GptConfig(layers=1, hidden=8, context=4, heads=3, vocabulary=11)


@pytest.mark.parametrize(("stage", "stages", "field"), [(0, 5, "stages"), (0, 0, "stages"), (4, 4, "stage")])
def test_an_invalid_stage_is_refused(stage: int, stages: int, field: str) -> None:
    with pytest.raises(ValueError, match=rf"^{field}: "):
        with_layers(4).layers_of(stage, stages)


def test_an_unknown_precision_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"^precision: 'fp8' is none of fp32, bf16, fp16"):
        GPT_A.activation_bytes("fp8")
