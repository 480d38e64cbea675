import pytest
import torch

from tests.support.workloads.prefill_by_hand import moved, tiny_stages, whole_model
from tests.support.workloads.reference_llama import SEED, TINY
from wanbed.workloads.inference import sequence_decoder
from wanbed.workloads.inference.decode import decode, greedy_token
from wanbed.workloads.inference.inference_work import InferenceWork
from wanbed.workloads.inference.sequence_decoder import SequenceDecoder

WORK = InferenceWork(TINY, SEED, "cpu")
PROMPT = [(37 * token + 5) % 512 for token in range(15)]


def parts(depth: int, cut: int) -> tuple[list[tuple[range, int, memoryview]], int]:
    """The parts of a cache from all stages in two chunks, and the first token."""
    found = []
    inputs = [torch.tensor(PROMPT[:cut]), torch.tensor(PROMPT[cut:])]
    for stage in tiny_stages(depth):
        cache = stage.new_cache(len(PROMPT))
        inputs = [stage.prefill_chunk(cache, x, prior) for x, prior in zip(inputs, (0, cut), strict=True)]
        found.append((stage.layers, 0, moved(cache.chunk_bytes(0, cut))))
        found.append((stage.layers, 1, moved(cache.chunk_bytes(cut, len(PROMPT) - cut))))
    return found, greedy_token(inputs[-1])


def expected(tokens: int) -> list[int]:
    cache = whole_model().new_cache(len(PROMPT) + tokens)
    first = greedy_token(whole_model().prefill_chunk(cache, torch.tensor(PROMPT), 0))
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
    monkeypatch.setattr(sequence_decoder, "MOST_TOKENS", 4)
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
