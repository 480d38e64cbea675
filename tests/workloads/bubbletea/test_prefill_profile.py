import csv
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.bubbletea.prefill_profile import Points, PrefillProfile, TimedChunk, error_on, fit_chunks
from wanbed.workloads.bubbletea.profile_files import load_prefill_profile
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS


def profile(fixed_ns: float = 0, per_token_ns: float = 0, per_token_pair_ns: float = 0) -> PrefillProfile:
    return PrefillProfile(fixed_ns, per_token_ns, per_token_pair_ns, source="a test", measured=False)


profiles = st.builds(
    profile,
    fixed_ns=st.floats(0, 1e7),
    per_token_ns=st.floats(1e-3, 1e5),
    per_token_pair_ns=st.just(0.0) | st.floats(1e-6, 1e2),
) | st.builds(profile, fixed_ns=st.floats(0, 1e7), per_token_pair_ns=st.floats(1e-3, 1e2))

layer_counts = st.integers(1, 126)

token_counts = st.integers(0, 200_000)


def test_a_chunk_takes_what_the_formula_says() -> None:
    # 4 layers x (1000 + 10 x 100 + 0.5 x 100 x (300 + 50))
    assert profile(1000, 10, 0.5).chunk_ns(4, 100, 300) == 4 * (1000 + 1000 + 17_500)


def test_a_part_of_a_nanosecond_counts_as_a_whole_one() -> None:
    assert profile(per_token_ns=0.1).chunk_ns(1, 1, 0) == 1
    assert profile(per_token_ns=0.1).chunk_ns(1, 11, 0) == 2


@given(
    profiles,
    layer_counts,
    st.lists(st.integers(1, 20_000), min_size=1, max_size=12),
)
def test_chunks_take_as_long_as_the_prompt_at_once_apart_from_the_fixed_part(
    any_profile: PrefillProfile, layers: int, chunks: list[int]
) -> None:
    cut_ns = sum(any_profile.chunk_ns(layers, tokens, sum(chunks[:place])) for place, tokens in enumerate(chunks))
    at_once_ns = any_profile.chunk_ns(layers, sum(chunks), 0)
    more_ns = (len(chunks) - 1) * layers * any_profile.fixed_ns
    rounding_ns = len(chunks) + 1e-12 * cut_ns
    assert abs(cut_ns - at_once_ns - more_ns) <= rounding_ns


@given(profiles, layer_counts, st.integers(1, 200_000), token_counts)
def test_more_tokens_never_take_less_time(any_profile: PrefillProfile, layers: int, tokens: int, prior: int) -> None:
    assert any_profile.chunk_ns(layers, tokens + 1, prior) >= any_profile.chunk_ns(layers, tokens, prior)
    assert any_profile.chunk_ns(layers, tokens, prior + 1) >= any_profile.chunk_ns(layers, tokens, prior)


@given(profiles, layer_counts, token_counts, st.integers(0, 10**11))
def test_the_largest_chunk_fits_and_one_token_more_does_not(
    any_profile: PrefillProfile, layers: int, prior: int, time_ns: int
) -> None:
    largest = any_profile.largest_chunk(layers, prior, time_ns)
    assert largest >= 0
    assert largest == 0 or any_profile.chunk_ns(layers, largest, prior) <= time_ns
    assert any_profile.chunk_ns(layers, largest + 1, prior) > time_ns


@given(profiles, layer_counts, st.integers(1, 200_000), token_counts)
def test_the_largest_chunk_is_found_at_the_very_nanosecond(
    any_profile: PrefillProfile, layers: int, tokens: int, prior: int
) -> None:
    time_ns = any_profile.chunk_ns(layers, tokens, prior)
    assert any_profile.largest_chunk(layers, prior, time_ns) >= tokens
    assert any_profile.largest_chunk(layers, prior, time_ns - 1) < tokens


def test_tokens_that_vanish_beside_the_fixed_part_are_found_nevertheless() -> None:
    tiny = profile(fixed_ns=1e12, per_token_ns=1e-5)
    largest = tiny.largest_chunk(1, 0, 10**12)
    assert tiny.chunk_ns(1, largest, 0) <= 10**12 < tiny.chunk_ns(1, largest + 1, 0)


@pytest.mark.parametrize("time_ns", [-1, 0, 1, 1000])
def test_no_chunk_fits_into_less_than_the_fixed_part_and_a_token(time_ns: int) -> None:
    assert profile(fixed_ns=1000, per_token_ns=1).largest_chunk(1, 0, time_ns) == 0


@pytest.mark.parametrize(
    ("figures", "refusal"),
    [
        ((-1, 1, 1), "fixed_ns: -1 is no time"),
        ((1, math.nan, 1), "per_token_ns: nan is no time"),
        ((1, 1, math.inf), "per_token_pair_ns: inf is no time"),
        ((1, 0, 0), "per_token_ns: 0, and per_token_pair_ns is 0 too"),
    ],
)
def test_a_profile_that_cannot_be_names_its_field(figures: tuple[float, float, float], refusal: str) -> None:
    with pytest.raises(ValueError, match=f"^{refusal}"):
        profile(*figures)


def test_a_chunk_that_cannot_be_names_its_argument() -> None:
    ready = profile(per_token_ns=1)
    with pytest.raises(ValueError, match=r"^tokens: 0 is below 1$"):
        ready.chunk_ns(1, 0, 0)
    with pytest.raises(ValueError, match=r"^layers: 0 is below 1$"):
        ready.largest_chunk(0, 0, 1)
    with pytest.raises(ValueError, match=r"^prior_tokens: -1 is negative$"):
        ready.chunk_ns(1, 1, -1)


SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)

LAYERS_OF_70B = 80


def fit_prompts(points: Points, layers: int, *, source: str) -> PrefillProfile:
    return fit_chunks([TimedChunk(tokens, 0, time_ns) for tokens, time_ns in points], layers, source=source)


def points_of(profile: PrefillProfile, layers: int) -> list[tuple[int, int]]:
    return [(tokens, profile.chunk_ns(layers, tokens, 0)) for tokens in SIZES]


@given(
    fixed_ns=st.just(0.0) | st.floats(1e3, 1e6),
    per_token_ns=st.floats(1e2, 1e4),
    per_token_pair_ns=st.just(0.0) | st.floats(1e-2, 1),
    layers=st.integers(1, 126),
)
def test_times_that_follow_the_formula_are_fitted_by_their_own_figures(
    fixed_ns: float, per_token_ns: float, per_token_pair_ns: float, layers: int
) -> None:
    true = PrefillProfile(fixed_ns, per_token_ns, per_token_pair_ns, source="true", measured=True)
    fitted = fit_prompts(points_of(true, layers), layers, source="a test")
    assert fitted.fixed_ns == pytest.approx(fixed_ns, rel=1e-2, abs=10)
    assert fitted.per_token_ns == pytest.approx(per_token_ns, rel=1e-2)
    assert fitted.per_token_pair_ns == pytest.approx(per_token_pair_ns, rel=1e-2, abs=1e-4)
    assert fitted.error is not None
    assert fitted.error.max < 1e-3


@given(st.lists(st.integers(10**6, 10**10), min_size=len(SIZES), max_size=len(SIZES)))
def test_no_other_figures_near_the_fit_are_nearer_to_the_times(times_ns: list[int]) -> None:
    points = list(zip(SIZES, sorted(times_ns), strict=True))

    def distance(figures: tuple[float, float, float]) -> float:
        fixed, linear, square = figures
        return sum(((fixed + linear * n + square * n * n / 2) / time_ns - 1) ** 2 for n, time_ns in points)

    try:
        fitted = fit_prompts(points, 1, source="a test")
    except ValueError:
        best, found = (0.0, 0.0, 0.0), len(points) * 1.0
    else:
        best = (fitted.fixed_ns, fitted.per_token_ns, fitted.per_token_pair_ns)
        found = distance(best)
    for place, step in enumerate((1e3, 1.0, 1e-4)):
        for sign in (-1, 1):
            other = list(best)
            other[place] = max(0.0, other[place] + sign * step)
            assert found <= distance((other[0], other[1], other[2])) + 1e-9


def test_the_error_is_reported_of_every_point() -> None:
    flat = PrefillProfile(0, 100, 0, source="a test", measured=False)
    points = [(tokens, 100 * tokens) for tokens in range(1, 20)] + [(20, 1000)]
    error = error_on(flat, points, 1)
    assert (error.points, error.least_tokens, error.most_tokens) == (20, 1, 20)
    assert error.max == 1.0
    assert error.mean == pytest.approx(1 / 20)
    assert error.p95 == 0.0


def test_a_fit_is_measured_and_names_its_source() -> None:
    fitted = fit_prompts([(1, 10), (2, 20), (4, 41)], 1, source="three prompts")
    assert fitted.measured
    assert fitted.source == "three prompts"
    assert fitted.error is not None
    assert fitted.error == error_on(fitted, [(1, 10), (2, 20), (4, 41)], 1)


@pytest.mark.parametrize(
    ("points", "layers", "refusal"),
    [
        ([], 1, "points: there are none"),
        ([(1, 1), (2, 2), (2, 3)], 1, "points: prompts of 2 sizes, 3 are wanted"),
        ([(1, 1), (2, 0), (3, 3)], 1, "points: 2 tokens in 0 ns are no prompt"),
        ([(100, 9000), (200, 3000), (300, 1000)], 1, "points: their times do not grow with tokens"),
        ([(1, 1), (2, 2), (3, 3)], 0, "layers: 0 is below 1"),
    ],
)
def test_points_that_fit_nothing_are_refused(points: list[tuple[int, int]], layers: int, refusal: str) -> None:
    with pytest.raises(ValueError, match=f"^{refusal}"):
        fit_prompts(points, layers, source="a test")


def measured_points(public_data: Path, hardware: str, gpus: int) -> list[tuple[int, int]]:
    """Median prompt times of Llama-2-70B, whose layers have the sizes of Llama 3 70B's."""
    times_ms: dict[int, list[float]] = {}
    with (public_data / "prefill_times" / "splitwise_perf_model.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if (row["model"], row["hardware"], row["tensor_parallel"]) == ("llama2-70b", hardware, str(gpus)) and row[
                "batch_size"
            ] == "1":
                times_ms.setdefault(int(row["prompt_size"]), []).append(float(row["prompt_time"]))
    return [(tokens, round(median(times) * 1e6)) for tokens, times in sorted(times_ms.items())]


# The formula has no term for the least time of any prompt, however short: on more and faster GPUs, prompts of
# 128 to 512 tokens take about the same time, and the fit's error is largest there.
@dataclass(frozen=True)
class Met:
    """The upper bounds of the relative errors."""

    worst_fit: float
    mean_held_out: float
    worst_held_out: float


@pytest.mark.parametrize(
    ("hardware", "gpus", "met"),
    [
        ("a100-80gb", 2, Met(worst_fit=0.05, mean_held_out=0.07, worst_held_out=0.07)),
        ("a100-80gb", 4, Met(worst_fit=0.06, mean_held_out=0.07, worst_held_out=0.07)),
        ("a100-80gb", 8, Met(worst_fit=0.09, mean_held_out=0.10, worst_held_out=0.12)),
        ("h100-80gb", 2, Met(worst_fit=0.13, mean_held_out=0.10, worst_held_out=0.18)),
        ("h100-80gb", 4, Met(worst_fit=0.15, mean_held_out=0.09, worst_held_out=0.18)),
        ("h100-80gb", 8, Met(worst_fit=0.21, mean_held_out=0.12, worst_held_out=0.27)),
    ],
)
def test_published_times_are_fitted_and_those_held_out_are_met(
    public_data: Path, hardware: str, gpus: int, met: Met
) -> None:
    points = measured_points(public_data, hardware, gpus)
    assert [tokens for tokens, _ in points] == list(SIZES)
    on_all = fit_prompts(points, LAYERS_OF_70B, source="all sizes").error
    assert on_all is not None
    assert on_all.max < met.worst_fit
    held_out = error_on(fit_prompts(points[::2], LAYERS_OF_70B, source="half"), points[1::2], LAYERS_OF_70B)
    assert held_out.mean < met.mean_held_out
    assert held_out.max < met.worst_held_out


def test_the_estimate_for_an_a100_is_on_the_careful_side_of_published_times(public_data: Path) -> None:
    """Two GPUs share each layer: a layer's time is half the estimate for one."""
    estimate = load_prefill_profile("a100", INFERENCE_MODELS["llama-70b"])
    for tokens, time_ns in measured_points(public_data, "a100-80gb", 2):
        ratio = estimate.chunk_ns(LAYERS_OF_70B, tokens, 0) / 2 / time_ns
        assert 0.99 < ratio < 1.17


def test_the_estimates_source_states_the_measurements(public_data: Path) -> None:
    """58 to 67 % of two A100's peak, at 512 tokens and more."""
    model = INFERENCE_MODELS["llama-70b"]
    reached = [
        100 * model.flops(LAYERS_OF_70B, tokens, 0) / (2 * 312e12 * time_ns / 1e9)
        for tokens, time_ns in measured_points(public_data, "a100-80gb", 2)
        if tokens >= 512
    ]
    assert (round(min(reached)), round(max(reached))) == (58, 67)


def test_chunks_that_follow_others_are_fitted_by_the_pairs_that_they_attend_to() -> None:
    true = PrefillProfile(2e4, 300.0, 7.0, "test", measured=True)
    cut = [(tokens, prior) for tokens in (4, 8, 16) for prior in (0, tokens, 3 * tokens)]
    chunks = [TimedChunk(tokens, prior, true.chunk_ns(3, tokens, prior)) for tokens, prior in cut]
    fitted = fit_chunks(chunks, 3, source="here")
    assert fitted.fixed_ns == pytest.approx(2e4, rel=1e-3)
    assert fitted.per_token_ns == pytest.approx(300, rel=1e-3)
    assert fitted.per_token_pair_ns == pytest.approx(7, rel=1e-3)
    assert fitted.error is not None
    assert (fitted.error.points, fitted.error.least_tokens, fitted.error.most_tokens) == (9, 4, 16)
    assert fitted.error.max < 1e-4


def test_chunks_of_one_size_are_different_ones_after_other_tokens() -> None:
    chunks = [TimedChunk(8, prior, 1000 + 10 * prior) for prior in (0, 8, 16)]
    assert fit_chunks(chunks, 1, source="here").per_token_pair_ns > 0
    with pytest.raises(ValueError, match="prompts of 2 sizes"):
        fit_chunks([*chunks[:2], chunks[0]], 1, source="here")
