import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.prefill.prefill_profile import PrefillProfile


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
