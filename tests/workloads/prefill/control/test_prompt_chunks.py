from hypothesis import given
from hypothesis import strategies as st

from tests.workloads.prefill.toy_datacenter import A100, LLAMA
from wanbed.workloads.prefill.control.prompt_chunks import ChunkTimes
from wanbed.workloads.prefill.messages import ENDLESS_NS
from wanbed.workloads.prefill.prefill_settings import PrefillSettings

TIMES = ChunkTimes(LLAMA, A100, PrefillSettings(slo_ns=1))


@given(st.integers(1, 20_000), st.one_of(st.just(ENDLESS_NS), st.integers(1_000_000, 3_000_000)))
def test_chunks_make_up_the_prompt_and_none_has_a_longer_layer_than_the_longest_bubble(
    prompt_tokens: int, longest_ns: int
) -> None:
    prior_tokens = 0
    while prior_tokens < prompt_tokens:
        chunk = TIMES.next_chunk(prompt_tokens, prior_tokens, longest_ns)
        if chunk is None:
            assert A100.largest_chunk(1, prior_tokens, longest_ns) == 0
            return
        assert chunk.prior_tokens == prior_tokens
        assert chunk.layer_ns == A100.chunk_ns(1, chunk.tokens, prior_tokens) <= longest_ns
        largest = chunk.tokens == min(512, prompt_tokens - prior_tokens)
        assert largest or A100.chunk_ns(1, chunk.tokens + 1, prior_tokens) > longest_ns
        prior_tokens += chunk.tokens
    assert prior_tokens == prompt_tokens


def test_a_layer_on_a_whole_prompt_is_the_sum_of_its_chunks() -> None:
    layer_ns = [A100.chunk_ns(1, 512, 0), A100.chunk_ns(1, 512, 512), A100.chunk_ns(1, 76, 1024)]
    assert TIMES.layer_ns(1100) == sum(layer_ns)
