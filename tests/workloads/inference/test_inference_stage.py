from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.workloads.prefill_by_hand import (
    CPU,
    PrefillByHand,
    orders,
    prefills,
    run_interleaved,
    tiny_stage,
    tiny_stages,
    whole_model,
)
from tests.support.workloads.reference_llama import SEED, TINY, one_shot
from wanbed.workloads.compute.device.torch_device import as_bytes
from wanbed.workloads.inference.inference_stage import InferenceStage

ALL_LAYERS = range(TINY.layers)
PROMPT = [(37 * token + 5) % 512 for token in range(40)]


def assert_equals_one_shot(prefill: PrefillByHand) -> None:
    """The keys, the values and the first token's logits, within 1e-5."""
    expected = one_shot(prefill.prompt)
    together = prefill.cache_on_another_host(len(prefill.prompt))
    for layer in ALL_LAYERS:
        found = np.frombuffer(together.layer_bytes(layer), np.float32)
        both = np.stack([expected.keys[layer], expected.values[layer]])
        np.testing.assert_allclose(found.reshape(both.shape), both, rtol=1e-5, atol=1e-5)
    assert prefill.logits is not None
    np.testing.assert_allclose(prefill.logits.numpy(), expected.logits[-1], rtol=1e-5, atol=1e-5)


@settings(max_examples=80)
@given(prefill=prefills())
def test_a_prefill_cut_into_stages_and_chunks_equals_a_one_shot_prefill(prefill: PrefillByHand) -> None:
    assert_equals_one_shot(prefill.run())


@settings(max_examples=30)
@given(several=st.lists(prefills(longest=12), min_size=2, max_size=4), order=orders())
def test_prefills_interrupted_at_layers_by_other_sequences_equal_one_shot_prefills(
    several: list[PrefillByHand], order: int
) -> None:
    run_interleaved(several, order)
    for prefill in several:
        assert_equals_one_shot(prefill)


@settings(max_examples=20)
@given(prefill=prefills(longest=12), other=prefills(longest=12), order=orders())
def test_interruptions_do_not_change_a_bit(prefill: PrefillByHand, other: PrefillByHand, order: int) -> None:
    undisturbed = PrefillByHand(prefill.prompt, prefill.chunk_ends, prefill.stages).run()
    run_interleaved([prefill, other], order)
    assert [cache.to_bytes() for cache in prefill.caches] == [cache.to_bytes() for cache in undisturbed.caches]
    assert prefill.logits is not None
    assert undisturbed.logits is not None
    assert torch.equal(prefill.logits, undisturbed.logits)


@pytest.mark.parametrize("depth", [2, 3, 8])
def test_cutting_into_stages_does_not_change_a_bit(depth: int) -> None:
    cut = PrefillByHand(PROMPT, [11, 12, 40], tiny_stages(depth)).run()
    whole = PrefillByHand(PROMPT, [11, 12, 40], [whole_model()]).run()
    assert cut.cache_on_another_host(40).to_bytes() == whole.caches[0].to_bytes()
    assert cut.logits is not None
    assert whole.logits is not None
    assert torch.equal(cut.logits, whole.logits)


def test_the_first_token_depends_on_every_token_of_the_prompt() -> None:
    prompt = PROMPT[:16]
    logits = one_shot(prompt).logits[-1]
    for position in range(len(prompt)):
        other = [*prompt[:position], (prompt[position] + 1) % 512, *prompt[position + 1 :]]
        assert np.abs(one_shot(other).logits[-1] - logits).max() > 1e-3


def test_a_chunk_takes_a_step_for_each_layer() -> None:
    stage = tiny_stage(range(1, 4))
    chunk = stage.begin_chunk(stage.new_cache(3), torch.zeros(3, TINY.hidden), 0)
    assert [(chunk.layers_left, chunk.step()) for _ in range(3)] == [(3, True), (2, True), (1, False)]
    with pytest.raises(RuntimeError, match="all layers"):
        chunk.step()


def test_a_chunk_counts_in_the_cache_with_its_last_step() -> None:
    stage = whole_model()
    cache = stage.new_cache(3)
    chunk = stage.begin_chunk(cache, torch.tensor([1, 2, 3]), 0)
    while chunk.layers_left > 1:
        chunk.step()
        assert cache.tokens == 0
        with pytest.raises(RuntimeError, match="layers of the stage to go"):
            _ = chunk.outputs
    chunk.step()
    assert cache.tokens == 3
    assert chunk.outputs.shape == (TINY.vocabulary,)


def test_a_chunk_that_was_begun_again_cannot_go_on_once_the_other_is_through() -> None:
    stage = whole_model()
    cache = stage.new_cache(3)
    given_up = stage.begin_chunk(cache, torch.tensor([1, 2, 3]), 0)
    given_up.step()
    stage.prefill_chunk(cache, torch.tensor([1, 2, 3]), 0)
    with pytest.raises(ValueError, match=r"^prior_tokens: the cache has 3 tokens, not 0$"):
        given_up.step()


def test_what_a_stage_sends_has_the_bytes_that_the_model_counts() -> None:
    first = tiny_stages(2)[0]
    outputs = first.prefill_chunk(first.new_cache(7), torch.arange(7), 0)
    assert as_bytes(CPU.on_host(outputs)).nbytes == TINY.activation_bytes(7)


def test_bf16_gives_about_what_fp32_does() -> None:
    model = replace(TINY, bytes_per_element=2)
    stage = InferenceStage(model, ALL_LAYERS, seed=SEED, device=CPU, precision="bf16")
    cache = stage.new_cache(40)
    stage.prefill_chunk(cache, torch.tensor(PROMPT[:23]), 0)
    logits = stage.prefill_chunk(cache, torch.tensor(PROMPT[23:]), 23)
    expected = one_shot(PROMPT).logits[-1]
    assert logits.dtype == torch.bfloat16
    assert cache.to_bytes().nbytes == model.kv_bytes(TINY.layers, 40)
    assert np.linalg.norm(logits.float().numpy() - expected) < 0.05 * np.linalg.norm(expected)


@pytest.mark.parametrize(
    ("tokens", "prior", "message"),
    [
        (2, 0, "prior_tokens: the cache has 3 tokens, not 0"),
        (2, 4, "prior_tokens: the cache has 3 tokens, not 4"),
        (3, 3, "tokens: the cache has room for 1 to 2 more, not 3"),
        (0, 3, "tokens: the cache has room for 1 to 2 more, not 0"),
    ],
)
def test_a_chunk_that_is_not_next_or_does_not_fit_is_refused(tokens: int, prior: int, message: str) -> None:
    stage = whole_model()
    cache = stage.new_cache(5)
    stage.prefill_chunk(cache, torch.arange(3), 0)
    with pytest.raises(ValueError, match=f"^{message}$"):
        stage.begin_chunk(cache, torch.arange(tokens), prior)


def test_inputs_of_another_shape_are_refused() -> None:
    first, second = tiny_stages(2)
    with pytest.raises(ValueError, match=r"^inputs: of shape \(3, 64\), not \(3,\)$"):
        first.begin_chunk(first.new_cache(3), torch.zeros(3, 64), 0)
    with pytest.raises(ValueError, match=r"^inputs: of shape \(3,\), not \(3, 64\)$"):
        second.begin_chunk(second.new_cache(3), torch.arange(3), 0)


def test_the_cache_of_another_stage_is_refused() -> None:
    first, second = tiny_stages(2)
    with pytest.raises(ValueError, match=r"^cache: "):
        second.begin_chunk(first.new_cache(3), torch.zeros(3, 64), 0)


@pytest.mark.parametrize("layers", [range(0), range(2, TINY.layers + 1), range(-1, 2), range(0, 4, 2)])
def test_layers_that_the_model_has_not_in_a_row_are_refused(layers: range) -> None:
    with pytest.raises(ValueError, match=r"^layers: "):
        InferenceStage(TINY, layers, seed=SEED, device=CPU, precision="fp32")


def test_a_precision_that_the_model_does_not_count_with_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^precision: bf16 stores 2 bytes of an element, llama-tiny counts 4$"):
        InferenceStage(TINY, ALL_LAYERS, seed=SEED, device=CPU, precision="bf16")


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^seed: -1 is negative$"):
        InferenceStage(TINY, ALL_LAYERS, seed=-1, device=CPU, precision="fp32")
