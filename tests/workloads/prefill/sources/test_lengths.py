import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.prefill.request import Request
from wanbed.workloads.prefill.sources.lengths import EmpiricalLengths, FixedLengths, LogNormalLengths


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
