from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.dataclass_json import read_config, write_config
from wanbed.workloads.compute.device_settings import DeviceSettings
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS, InferenceModel, InferenceWork

LLAMA_8B = INFERENCE_MODELS["llama-8b"]

LLAMA_70B = INFERENCE_MODELS["llama-70b"]

TINY = INFERENCE_MODELS["llama-tiny"]


def test_models_are_known_by_their_name() -> None:
    assert {name: model.name for name, model in INFERENCE_MODELS.items()} == {
        name: name for name in ("llama-8b", "llama-70b", "llama-tiny")
    }


@pytest.mark.parametrize(("model", "parameters"), [(LLAMA_8B, 8_030_261_248), (LLAMA_70B, 70_553_706_496)])
def test_weights_are_those_of_the_published_models(model: InferenceModel, parameters: int) -> None:
    assert model.weight_bytes(model.layers, embedding=True, head=True) == 2 * parameters


def test_a_stage_weighs_its_layers_and_the_end_it_has() -> None:
    layer = 4096 * 4096 + 2 * 4096 * 1024 + 4096 * 4096 + 3 * 4096 * 14336 + 2 * 4096
    table = 128_256 * 4096
    assert LLAMA_8B.weight_bytes(3, embedding=False, head=False) == 2 * 3 * layer
    assert LLAMA_8B.weight_bytes(1, embedding=True, head=False) == 2 * (layer + table)
    assert LLAMA_8B.weight_bytes(1, embedding=False, head=True) == 2 * (layer + table + 4096)


@given(depth=st.integers(1, 8))
def test_stages_together_weigh_what_the_model_does(depth: int) -> None:
    shares = LLAMA_8B.stage_layers(depth)
    together = sum(
        LLAMA_8B.weight_bytes(layers, embedding=stage == 0, head=stage == depth - 1)
        for stage, layers in enumerate(shares)
    )
    assert together == LLAMA_8B.weight_bytes(32, embedding=True, head=True)


def test_the_kv_cache_of_a_token_is_as_published() -> None:
    assert LLAMA_8B.kv_bytes(32, 1) == 131_072
    assert LLAMA_70B.kv_bytes(80, 1) == 327_680
    assert LLAMA_8B.kv_bytes(8, 1000) == 8 * 1000 * 4096


def test_a_stage_sends_the_hidden_state_of_every_token() -> None:
    assert LLAMA_8B.activation_bytes(100) == 100 * 4096 * 2
    assert TINY.activation_bytes(3) == 3 * 64 * 4


def flops_one_by_one(model: InferenceModel, tokens: int, prior_tokens: int) -> int:
    """Count one layer's operations: two for each element of each matrix that multiplies a token's vector."""
    total = 0
    query_width, kv_width = model.heads * model.head_dim, model.kv_heads * model.head_dim
    for position in range(prior_tokens, prior_tokens + tokens):
        total += 2 * model.hidden * query_width  # queries
        total += 2 * 2 * model.hidden * kv_width  # keys and values
        for _ in range(position + 1):
            total += 2 * query_width  # the score of one token, in each head
            total += 2 * query_width  # its value's part of the sum, in each head
        total += 2 * query_width * model.hidden  # the output
        total += 3 * 2 * model.hidden * model.feed_forward  # gate, up and down
    return total


@given(tokens=st.integers(0, 20), prior_tokens=st.integers(0, 20), layers=st.integers(0, 4))
def test_operations_are_those_of_a_count_one_by_one(tokens: int, prior_tokens: int, layers: int) -> None:
    assert TINY.flops(layers, tokens, prior_tokens) == layers * flops_one_by_one(TINY, tokens, prior_tokens)


def test_operations_of_the_published_models_are_as_computed_by_hand() -> None:
    # 1000 tokens after 500: 2 x 1000 x 218,103,808 + 4 x 4096 x (500,000 + 500,500).
    assert LLAMA_8B.flops(1, 1000, 500) == 436_207_616_000 + 16_392_192_000
    assert LLAMA_8B.head_flops() == 2 * 4096 * 128_256
    assert LLAMA_8B.head_flops(3) == 3 * LLAMA_8B.head_flops()


@given(chunks=st.lists(st.integers(1, 5000), min_size=1, max_size=8))
def test_chunks_take_the_operations_of_the_prompt_at_once(chunks: list[int]) -> None:
    cut = sum(LLAMA_8B.flops(32, tokens, sum(chunks[:place])) for place, tokens in enumerate(chunks))
    assert cut == pytest.approx(LLAMA_8B.flops(32, sum(chunks), 0), rel=1e-12)


@given(layers=st.integers(1, 200), data=st.data())
def test_stages_are_as_even_as_layers_go_and_the_first_have_more(layers: int, data: st.DataObject) -> None:
    depth = data.draw(st.integers(1, layers))
    shares = replace(TINY, layers=layers).stage_layers(depth)
    assert len(shares) == depth
    assert sum(shares) == layers
    assert max(shares) - min(shares) <= 1
    assert list(shares) == sorted(shares, reverse=True)


@pytest.mark.parametrize("model", INFERENCE_MODELS.values(), ids=lambda model: model.name)
@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_every_model_cuts_evenly_into_the_depths_that_are_compared(model: InferenceModel, depth: int) -> None:
    assert set(model.stage_layers(depth)) == {model.layers // depth}


@pytest.mark.parametrize("depth", [0, 9, -1])
def test_a_stage_without_a_layer_is_refused(depth: int) -> None:
    with pytest.raises(ValueError, match=f"^depth: 8 layers make 1 to 8 stages, not {depth}$"):
        TINY.stage_layers(depth)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"layers": 0}, "layers: 0 is below 1"),
        ({"bytes_per_element": 0}, "bytes_per_element: 0 is below 1"),
        ({"kv_heads": 3}, "kv_heads: 4 heads do not share 3 KV heads evenly"),
        ({"head_dim": 15}, "head_dim: 15 is odd"),
    ],
)
def test_a_model_that_cannot_be_names_its_field(changes: dict[str, int], refusal: str) -> None:
    with pytest.raises(ValueError, match=f"^{refusal}"):
        replace(TINY, **changes)


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^tokens: -1 is negative$"):
        TINY.kv_bytes(1, -1)
    with pytest.raises(ValueError, match=r"^prior_tokens: -1 is negative$"):
        TINY.flops(1, 1, -1)
    with pytest.raises(ValueError, match=r"^layers: -1 is negative$"):
        TINY.weight_bytes(-1, embedding=False, head=False)


WORK = InferenceWork(TINY, 3, DeviceSettings("cpu", 2))


def test_it_goes_through_a_file(tmp_path: Path) -> None:
    write_config(WORK, tmp_path / "work.json")
    assert read_config(InferenceWork, tmp_path / "work.json") == WORK


@pytest.mark.parametrize(("name", "precision"), [("llama-tiny", "fp32"), ("llama-8b", "bf16")])
def test_the_precision_is_what_the_model_counts_bytes_of(name: str, precision: str) -> None:
    assert replace(WORK, model=INFERENCE_MODELS[name]).precision == precision


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"model": replace(TINY, bytes_per_element=8)}, "model: torch has no precision of 8 bytes"),
        ({"seed": -1}, "seed: -1 is below 0"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_field(changes: dict[str, object], refusal: str) -> None:
    with pytest.raises(ValueError, match=f"^{refusal}"):
        replace(WORK, **changes)  # type: ignore[arg-type]
