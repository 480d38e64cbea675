import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.workloads.prefill_by_hand import PrefillByHand, moved, prefills, tiny_stages, whole_model
from tests.support.workloads.reference_llama import SEED, TINY, one_shot
from wanbed.workloads.compute.device_settings import DeviceSettings
from wanbed.workloads.inference.decode import SequenceDecoder, decode, greedy_token
from wanbed.workloads.inference.inference_model import InferenceWork

PROMPT = [(37 * token + 5) % 512 for token in range(30)]


def first_token(prefill: PrefillByHand) -> int:
    assert prefill.logits is not None
    return greedy_token(prefill.logits)


@pytest.mark.parametrize("start", range(4))
def test_the_tokens_are_those_that_whole_sequences_without_a_cache_give(start: int) -> None:
    prefill = PrefillByHand(PROMPT[start:], [7, 30 - start], tiny_stages(2)).run()
    sequence = list(prefill.prompt)
    for _ in range(9):
        sequence.append(int(one_shot(sequence).logits[-1].argmax()))
    first = first_token(prefill)
    followers = decode([whole_model()], [prefill.cache_on_another_host(40)], first, 8)
    assert [first, *followers] == sequence[len(prefill.prompt) :]
    assert len(set(followers)) > 1


@settings(max_examples=20)
@given(prefill=prefills(longest=16), tokens=st.integers(0, 5))
def test_each_token_of_a_moved_cache_is_the_likeliest(prefill: PrefillByHand, tokens: int) -> None:
    prefill.run()
    first = first_token(prefill)
    followers = decode([whole_model()], [prefill.cache_on_another_host(len(prefill.prompt) + 5)], first, tokens)
    assert len(followers) == tokens
    logits = one_shot([*prefill.prompt, first, *followers]).logits
    for token, of_all in zip([first, *followers], logits[len(prefill.prompt) - 1 :], strict=False):
        # Two tokens that are equally likely except for rounding are both correct.
        assert of_all[token] == pytest.approx(of_all.max(), abs=1e-5)


@settings(max_examples=15)
@given(prompt=st.lists(st.integers(0, 511), min_size=1, max_size=16), depth=st.sampled_from([1, 2, 4, 8]))
def test_a_moved_cache_gives_the_tokens_of_the_one_it_was_moved_from(prompt: list[int], depth: int) -> None:
    stages = tiny_stages(depth)
    caches = [stage.new_cache(len(prompt) + 6) for stage in stages]
    x = torch.tensor(prompt)
    for stage, cache in zip(stages, caches, strict=True):
        x = stage.prefill_chunk(cache, x, 0)
    there = whole_model().new_cache(len(prompt) + 6)
    for cache in caches:
        there.load(cache.layers, moved(cache.to_bytes()))
    first = greedy_token(x)
    assert decode([whole_model()], [there], first, 6) == decode(stages, caches, first, 6)
    assert there.to_bytes() == b"".join(cache.to_bytes() for cache in caches)


def test_decode_adds_to_the_cache_what_a_prefill_of_those_tokens_would() -> None:
    cache = PrefillByHand(PROMPT, [30], [whole_model()]).run().cache_on_another_host(35)
    followers = decode([whole_model()], [cache], 3, 5)
    expected = one_shot([*PROMPT, 3, *followers[:-1]])
    assert cache.tokens == 35
    for layer in range(TINY.layers):
        both = np.stack([expected.keys[layer], expected.values[layer]])
        found = np.frombuffer(cache.layer_bytes(layer), np.float32).reshape(both.shape)
        np.testing.assert_allclose(found, both, rtol=1e-5, atol=1e-5)


def test_the_first_of_equally_likely_tokens_is_taken() -> None:
    assert greedy_token(torch.tensor([0.5, 2.0, 1.0, 2.0])) == 1


def test_stages_that_are_not_the_whole_model_in_order_are_refused() -> None:
    first, second = tiny_stages(2)
    for stages in ([], [first], [second], [second, first], [first, second, second]):
        with pytest.raises(ValueError, match=r"^stages: "):
            decode(stages, [stage.new_cache(4) for stage in stages], 0, 1)


def test_caches_that_hold_different_tokens_are_refused() -> None:
    first, second = tiny_stages(2)
    ahead = first.new_cache(9)
    first.prefill_chunk(ahead, torch.arange(2), 0)
    with pytest.raises(ValueError, match=r"^caches: one has 0 tokens, another 2$"):
        decode([first, second], [ahead, second.new_cache(9)], 0, 1)


def test_a_cache_for_each_stage_is_needed() -> None:
    with pytest.raises(ValueError, match=r"^caches: "):
        decode(tiny_stages(2), [tiny_stages(2)[0].new_cache(4)], 0, 1)


def test_caches_without_room_for_the_tokens_are_refused() -> None:
    prefill = PrefillByHand(PROMPT, [30], [whole_model()]).run()
    with pytest.raises(ValueError, match=r"^caches: 30 tokens and 3 more do not fit into 32$"):
        decode([whole_model()], [prefill.cache_on_another_host(32)], 0, 3)


WORK = InferenceWork(TINY, SEED, DeviceSettings("cpu"))

SHORT_PROMPT = [(37 * token + 5) % 512 for token in range(15)]


def parts(depth: int, cut: int) -> tuple[list[tuple[range, int, memoryview]], int]:
    """The parts of a cache from all stages in two chunks, and the first token."""
    found = []
    inputs = [torch.tensor(SHORT_PROMPT[:cut]), torch.tensor(SHORT_PROMPT[cut:])]
    for stage in tiny_stages(depth):
        cache = stage.new_cache(len(SHORT_PROMPT))
        inputs = [stage.prefill_chunk(cache, x, prior) for x, prior in zip(inputs, (0, cut), strict=True)]
        found.append((stage.layers, 0, moved(cache.chunk_bytes(0, cut))))
        found.append((stage.layers, 1, moved(cache.chunk_bytes(cut, len(SHORT_PROMPT) - cut))))
    return found, greedy_token(inputs[-1])


def expected(tokens: int) -> list[int]:
    cache = whole_model().new_cache(len(SHORT_PROMPT) + tokens)
    first = greedy_token(whole_model().prefill_chunk(cache, torch.tensor(SHORT_PROMPT), 0))
    return [first, *decode([whole_model()], [cache], first, tokens - 1)]


def finished(decoder: SequenceDecoder) -> dict[int, list[int]]:
    while decoder.busy:
        decoder.step()
    return decoder.tokens


@pytest.mark.parametrize("depth", [1, 2, 8])
def test_cache_parts_may_arrive_in_any_order(depth: int) -> None:
    decoder = SequenceDecoder(WORK)
    came, first = parts(depth, 6)
    for layers, chunk, data in reversed(came):
        decoder.add_cache_part(3, layers, chunk, data, first if chunk == 1 and layers.stop == TINY.layers else None)
    decoder.begin(3, 6)
    assert finished(decoder) == {3: expected(6)}


def test_sequences_go_on_in_the_order_in_which_they_were_begun_a_token_at_each_step() -> None:
    decoder = SequenceDecoder(WORK)
    came, first = parts(2, 6)
    for request in (4, 2):
        for layers, chunk, data in came:
            decoder.add_cache_part(request, layers, chunk, data, first)
        decoder.begin(request, 3)
    seen = []
    for _ in range(4):
        decoder.step()
        seen.append([len(decoder.tokens[request]) for request in (4, 2)])
    assert seen == [[2, 1], [3, 1], [3, 2], [3, 3]]


def test_a_request_for_one_token_has_it_from_its_prefill() -> None:
    decoder = SequenceDecoder(WORK)
    came, first = parts(1, 6)
    for layers, chunk, data in came:
        decoder.add_cache_part(0, layers, chunk, data, first)
    decoder.begin(0, 1)
    assert finished(decoder) == {0: [first]}


def test_no_sequence_goes_on_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wanbed.workloads.inference.decode.MOST_TOKENS", 4)
    decoder = SequenceDecoder(WORK)
    came, first = parts(1, 6)
    for layers, chunk, data in came:
        decoder.add_cache_part(0, layers, chunk, data, first)
    decoder.begin(0, 10**9)
    assert finished(decoder) == {0: expected(4)}


def test_a_cache_that_is_not_whole_is_refused() -> None:
    decoder = SequenceDecoder(WORK)
    came, first = parts(2, 6)
    for layers, chunk, data in came[:-1]:
        decoder.add_cache_part(0, layers, chunk, data, first)
    with pytest.raises(ValueError, match=r"^request 0: its cache is not whole$"):
        decoder.begin(0, 3)


def test_a_cache_without_its_first_token_is_refused() -> None:
    decoder = SequenceDecoder(WORK)
    for layers, chunk, data in parts(1, 6)[0]:
        decoder.add_cache_part(0, layers, chunk, data, None)
    with pytest.raises(ValueError, match=r"^request 0: its first token did not come"):
        decoder.begin(0, 3)
