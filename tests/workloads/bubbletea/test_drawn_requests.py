import math
from collections.abc import Iterator
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wanbed.workloads.bubbletea.drawn_requests import EmpiricalLengths, FixedLengths, LogNormalLengths, gamma, poisson
from wanbed.workloads.bubbletea.request import Request

FIXED = FixedLengths(100, 10)

DRAWN = LogNormalLengths(1000, 2.0, 100, 2.0)

S = 10**9

seeds = st.integers(0, 2**64)

rates = st.floats(1e-3, 1e4)

cvs = st.floats(0.05, 20)


def gaps_s(requests: Iterator[Request], count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.diff([0, *(request.arrival_ns for request in islice(requests, count))]) / 1e9


@settings(max_examples=30)
@given(seeds, rates, cvs)
def test_requests_are_numbered_in_order_of_arrival(seed: int, rate_per_s: float, cv: float) -> None:
    for requests in (poisson(rate_per_s, DRAWN, seed=seed), gamma(rate_per_s, cv, DRAWN, seed=seed)):
        first = list(islice(requests, 1500))
        assert [request.number for request in first] == list(range(1500))
        assert all(early.arrival_ns <= late.arrival_ns for early, late in pairwise(first))


@given(seeds, rates, cvs)
def test_the_same_seed_gives_the_same_requests_and_another_gives_others(
    seed: int, rate_per_s: float, cv: float
) -> None:
    for make in (
        lambda seed: poisson(rate_per_s, DRAWN, seed=seed),
        lambda seed: gamma(rate_per_s, cv, DRAWN, seed=seed),
    ):
        assert list(islice(make(seed), 50)) == list(islice(make(seed), 50))
        assert list(islice(make(seed), 50)) != list(islice(make(seed + 1), 50))


@given(seeds, st.floats(0.1, 1000), st.integers(0, 100 * S))
def test_a_duration_takes_exactly_the_arrivals_before_it(seed: int, rate_per_s: float, duration_ns: int) -> None:
    duration_ns = min(duration_ns, int(2000 / rate_per_s * S))
    within = list(poisson(rate_per_s, DRAWN, seed=seed, duration_ns=duration_ns))
    endless = list(islice(poisson(rate_per_s, DRAWN, seed=seed), len(within) + 1))
    assert within == endless[:-1]
    assert endless[-1].arrival_ns >= duration_ns
    assert all(request.arrival_ns < duration_ns for request in within)


# Bounds of four standard errors, at a fixed seed each: of a mean, CV / sqrt(n); of a count over a duration likewise.
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rate_per_s", [0.1, 4.0, 2000.0])
def test_poisson_has_the_configured_mean_rate_and_a_cv_of_one(seed: int, rate_per_s: float) -> None:
    gaps = gaps_s(poisson(rate_per_s, FIXED, seed=seed), 20_000)
    assert gaps.mean() * rate_per_s == pytest.approx(1, abs=4 / math.sqrt(20_000))
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cv", [0.2, 1.0, 3.0])
def test_gamma_has_the_configured_mean_rate_and_cv(seed: int, cv: float) -> None:
    gaps = gaps_s(gamma(4.0, cv, FIXED, seed=seed), 40_000)
    assert gaps.mean() * 4 == pytest.approx(1, abs=4 * cv / math.sqrt(40_000))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.08)


@pytest.mark.parametrize("seed", range(3))
def test_the_count_over_a_duration_is_the_rate_times_it(seed: int) -> None:
    assert abs(len(list(poisson(50.0, FIXED, seed=seed, duration_ns=200 * S))) - 10_000) < 4 * math.sqrt(10_000)
    bursty = len(list(gamma(50.0, 3.0, FIXED, seed=seed, duration_ns=200 * S)))
    assert abs(bursty - 10_000 - (3**2 - 1) / 2) < 4 * 3 * math.sqrt(10_000)


def test_counts_of_a_poisson_process_vary_as_much_as_their_mean() -> None:
    arrivals = [request.arrival_ns // S for request in poisson(10.0, FIXED, seed=5, duration_ns=4000 * S)]
    counts = np.bincount(arrivals, minlength=4000)
    assert counts.var() / counts.mean() == pytest.approx(1, abs=4 * math.sqrt(2 / 4000))


@given(seeds)
def test_another_rate_keeps_lengths_and_the_pattern_of_gaps(seed: int) -> None:
    slow, fast = (list(islice(poisson(rate, DRAWN, seed=seed), 200)) for rate in (1.0, 4.0))
    assert [(r.prompt_tokens, r.output_tokens) for r in slow] == [(r.prompt_tokens, r.output_tokens) for r in fast]
    assert all(abs(s.arrival_ns - 4 * f.arrival_ns) <= 4 * (s.number + 1) for s, f in zip(slow, fast, strict=True))


@given(seeds)
def test_other_lengths_keep_the_arrivals(seed: int) -> None:
    fixed, drawn = (list(islice(gamma(4.0, 2.0, lengths, seed=seed), 200)) for lengths in (FIXED, DRAWN))
    assert [request.arrival_ns for request in fixed] == [request.arrival_ns for request in drawn]


def test_the_rarest_gap_at_the_lowest_rate_is_a_number_still() -> None:
    late = list(islice(gamma(1e-9, 100.0, FIXED, seed=0), 3000))[-1]
    assert late.arrival_ns > 2**63


def test_a_burst_of_ten_thousand_in_a_second_is_made_as_it_is_taken() -> None:
    requests = poisson(10_000.0, FIXED, seed=0)
    assert next(requests).arrival_ns < S
    assert abs(sum(1 for _ in poisson(10_000.0, FIXED, seed=0, duration_ns=S)) - 10_000) < 400


@pytest.mark.parametrize("rate_per_s", [0.0, -1.0, math.nan, math.inf, 1e-320])
def test_a_rate_that_is_none_is_refused_at_once(rate_per_s: float) -> None:
    with pytest.raises(ValueError, match=r"^rate_per_s: "):
        poisson(rate_per_s, FIXED, seed=0)
    with pytest.raises(ValueError, match=r"^rate_per_s: "):
        gamma(rate_per_s, 1.0, FIXED, seed=0)


def test_arguments_that_cannot_be_are_refused_at_once() -> None:
    for cv in (0.0, -1.0, math.nan, 101.0):
        with pytest.raises(ValueError, match=r"^cv: .* is not in 0\.01 to 100$"):
            gamma(1.0, cv, FIXED, seed=0)
    with pytest.raises(ValueError, match=r"^seed: -1 is negative$"):
        poisson(1.0, FIXED, seed=-1)
    with pytest.raises(ValueError, match=r"^duration_ns: -1 is negative$"):
        poisson(1.0, FIXED, seed=0, duration_ns=-1)


def test_fixed_lengths_are_all_the_same() -> None:
    prompts, outputs = FixedLengths(100, 7).draw(np.random.default_rng(0), 4)
    assert (prompts.tolist(), outputs.tolist()) == ([100] * 4, [7] * 4)


def test_empirical_lengths_keep_prompt_and_output_of_a_request_together() -> None:
    pairs = [(10, 1), (20, 2), (20, 5), (30, 3)]
    requests = [Request(i, i, *pair) for i, pair in enumerate(pairs)]
    prompts, outputs = EmpiricalLengths(requests).draw(np.random.default_rng(0), 4000)
    drawn = list(zip(prompts.tolist(), outputs.tolist(), strict=True))
    assert set(drawn) == set(pairs)
    # Four standard deviations of a count out of 4000 at 1 in 4.
    assert all(abs(drawn.count(pair) - 1000) < 110 for pair in pairs)


def test_log_normal_lengths_have_the_configured_median_and_spread() -> None:
    prompts, outputs = LogNormalLengths(1000, 2.0, 50, 3.0, 10**9).draw(np.random.default_rng(0), 40_000)
    for drawn, median, spread in ((prompts, 1000, 2.0), (outputs, 50, 3.0)):
        assert np.median(drawn) == pytest.approx(median, rel=0.03)
        assert np.exp(np.std(np.log(drawn))) == pytest.approx(spread, rel=0.03)
        within = np.mean((drawn >= median / spread) & (drawn <= median * spread))
        assert within == pytest.approx(0.683, abs=0.02)


@given(st.integers(1, 10**6), st.floats(1, 1e300), st.integers(1, 10**6), st.floats(1, 1e3), st.integers(1, 10**6))
def test_log_normal_lengths_stay_in_bounds(
    prompt_median: int, prompt_spread: float, output_median: int, output_spread: float, most_tokens: int
) -> None:
    lengths = LogNormalLengths(prompt_median, prompt_spread, output_median, output_spread, most_tokens)
    for drawn in lengths.draw(np.random.default_rng(1), 50):
        assert drawn.min() >= 1
        assert drawn.max() <= most_tokens


def test_a_spread_of_one_is_the_median_alone() -> None:
    prompts, outputs = LogNormalLengths(1000, 1.0, 50, 1.0).draw(np.random.default_rng(0), 10)
    assert (set(prompts.tolist()), set(outputs.tolist())) == ({1000}, {50})


def test_lengths_that_cannot_be_name_their_field() -> None:
    with pytest.raises(ValueError, match=r"^prompt_tokens: 0 is below 1$"):
        FixedLengths(0, 1)
    with pytest.raises(ValueError, match=r"^output_median: 0 is below 1$"):
        LogNormalLengths(1, 1.0, 0, 1.0)
    with pytest.raises(ValueError, match=r"^output_spread: 0.5 is below 1"):
        LogNormalLengths(1, 1.0, 1, 0.5)
    with pytest.raises(ValueError, match=r"^prompt_spread: nan is below 1"):
        LogNormalLengths(1, float("nan"), 1, 1.0)
    with pytest.raises(ValueError, match=r"^requests: there are none"):
        EmpiricalLengths([])
