from collections.abc import Sequence

import pytest
import torch

from tests.support.workloads.prefill_by_hand import whole_model
from tests.support.workloads.reference_llama import SEED, TINY
from wanbed.workloads.bubbletea.bubble_filler import LayerRun
from wanbed.workloads.bubbletea.messages import Piece
from wanbed.workloads.bubbletea.prefill_profile import PrefillProfile
from wanbed.workloads.bubbletea.prefill_settings import PrefillSettings
from wanbed.workloads.compute.device_settings import DeviceSettings
from wanbed.workloads.inference.decode import greedy_token
from wanbed.workloads.inference.inference_model import InferenceWork
from wanbed.workloads.inference.inference_stage import InferenceStage, PrefillChunk
from wanbed.workloads.inference.key_value_cache import KVCache
from wanbed.workloads.serving.gpu_worker import serving_gpu
from wanbed.workloads.serving.prefill_compute import PieceResults, PrefillCompute, prompt_tokens
from wanbed.workloads.serving.serving_configs import Endpoint, GpuServingConfig, ServedStage, ServingPeers

WORK = InferenceWork(TINY, SEED, DeviceSettings("cpu"))

LAYERS = TINY.layers

TOKENS = 20


def piece(*, chunk: int = 0, tokens: int = TOKENS, prior: int = 0, layers: int = LAYERS, last: bool = True) -> Piece:
    return Piece(5, 0, chunk, tokens, prior, layers, last, TOKENS)


def computed(compute: PrefillCompute, of: Piece, cuts: Sequence[int]) -> PieceResults:
    """Compute a piece's tokens in parts of the given sizes through all layers, and return the piece's results."""
    prior = of.prior_tokens
    for tokens in cuts:
        for _ in range(of.layers):
            start_ns, end_ns = compute.run_layer(LayerRun(of, 1, 1, 0, 1, tokens, prior))
            assert 0 < start_ns < end_ns
        prior += tokens
    return compute.take_results(of)


def test_a_whole_models_piece_is_the_prefill_of_its_prompt() -> None:
    made = computed(PrefillCompute(WORK, range(LAYERS)), piece(), [TOKENS])
    cache = whole_model().new_cache(TOKENS)
    prompt = torch.tensor(prompt_tokens(SEED, 5, TOKENS, TINY.vocabulary))
    logits = whole_model().prefill_chunk(cache, prompt, 0)
    assert made.activation is None
    assert made.first_token == greedy_token(logits)
    assert made.cache == cache.to_bytes()


def test_a_piece_that_was_cut_makes_what_it_makes_whole_but_for_rounding() -> None:
    whole, cut = (computed(PrefillCompute(WORK, range(3)), piece(layers=3), cuts) for cuts in ([TOKENS], [9, 1, 10]))
    assert whole.activation_bytes.nbytes == TINY.activation_bytes(TOKENS)
    for name in ("activation", "cache"):
        one, other = (torch.frombuffer(getattr(made, name), dtype=torch.float32) for made in (whole, cut))
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_the_first_token_comes_with_the_last_piece_alone() -> None:
    compute = PrefillCompute(WORK, range(LAYERS))
    assert computed(compute, piece(tokens=12, last=False), [12]).first_token is None
    assert computed(compute, piece(chunk=1, tokens=8, prior=12), [8]).first_token is not None


@pytest.mark.parametrize("layers", [1, 3])
def test_a_piece_has_its_own_results_whatever_was_computed_before_they_are_taken(layers: int) -> None:
    early, late = (PrefillCompute(WORK, range(layers)) for _ in range(2))
    first = piece(tokens=12, layers=layers, last=False)
    second = piece(chunk=1, tokens=8, prior=12, layers=layers)
    expected = [computed(early, first, [12]), computed(early, second, [8])]
    for each in (first, second):
        for _ in range(layers):
            late.run_layer(LayerRun(each, 1, 1, 0, 1, each.tokens, each.prior_tokens))
    assert [late.take_results(first), late.take_results(second)] == expected


def test_a_sequence_is_forgotten_with_its_last_piece() -> None:
    compute = PrefillCompute(WORK, range(LAYERS))
    first = computed(compute, piece(), [TOKENS])
    assert computed(compute, piece(), [TOKENS]).cache == first.cache


def test_later_stages_need_what_the_stage_before_has_sent() -> None:
    compute = PrefillCompute(WORK, range(3, LAYERS))
    with pytest.raises(KeyError):
        compute.run_layer(LayerRun(piece(layers=5), 1, 1, 0, 1, TOKENS, 0))
    sent = computed(PrefillCompute(WORK, range(3)), piece(layers=3), [TOKENS]).activation_bytes
    compute.input_arrived(5, 0, memoryview(bytearray(sent)))
    made = computed(compute, piece(layers=5), [TOKENS])
    assert made.first_token == computed(PrefillCompute(WORK, range(LAYERS)), piece(), [TOKENS]).first_token


def test_dummy_chunks_are_timed_and_leave_no_state() -> None:
    compute = PrefillCompute(WORK, range(3))
    assert len(compute.time_chunks(16, 4)) == 4
    assert all(time_ns > 0 for time_ns in compute.time_chunks(1, 2))
    later = PrefillCompute(WORK, range(3, LAYERS))
    assert all(time_ns > 0 for time_ns in later.time_chunks(16, 2))


@pytest.mark.parametrize("layers", [range(2), range(3, 5)])
def test_the_warm_up_runs_chunks_of_random_values_of_the_given_size_with_and_without_prior_tokens(
    layers: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[int, int]] = []
    real = InferenceStage.begin_chunk

    def kept(self: InferenceStage, cache: KVCache, inputs: torch.Tensor, prior_tokens: int) -> PrefillChunk:
        begun.append((len(inputs), prior_tokens))
        assert len(inputs.unique()) > len(inputs) / 2
        return real(self, cache, inputs, prior_tokens)

    monkeypatch.setattr(InferenceStage, "begin_chunk", kept)
    PrefillCompute(WORK, layers, 48)
    assert begun == [(48, 0), (48, 48)]


def test_a_gpu_of_a_service_is_warmed_up_with_the_services_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[int] = []
    real = PrefillCompute.time_chunks

    def kept(self: PrefillCompute, tokens: int, chunks: int) -> list[int]:
        timed.append(tokens)
        return real(self, tokens, chunks)

    monkeypatch.setattr(PrefillCompute, "time_chunks", kept)
    nowhere = Endpoint("", "", 0)
    serving_gpu(
        GpuServingConfig(
            gpu=0,
            pooled=True,
            served=ServedStage(TINY, LAYERS, 0, 1, 1),
            peers=ServingPeers(nowhere, nowhere, (nowhere,), None, 1),
            profile=PrefillProfile(0.0, 1.0, 0.0, source="a test", measured=False),
            settings=PrefillSettings(slo_ns=1, chunk_tokens=37),
            counts="",
            epoch_ns=0,
            inference=WORK,
        )
    )
    assert timed == [37]


def test_a_prompt_is_the_same_in_every_process() -> None:
    assert prompt_tokens(3, 7, 40, 512) == prompt_tokens(3, 7, 40, 512)


def test_requests_and_seeds_have_prompts_of_their_own() -> None:
    assert len({tuple(prompt_tokens(seed, request, 40, 512)) for seed in range(4) for request in range(4)}) == 16


def test_tokens_are_all_of_the_vocabulary() -> None:
    assert set(prompt_tokens(3, 7, 1000, 16)) == set(range(16))
