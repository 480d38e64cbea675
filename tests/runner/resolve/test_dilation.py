import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.records.span_log import Span
from wanbed.runner.resolve.dilation import (
    CapacityError,
    choose_dilation,
    dilated_ns,
    settled_dilation,
    undilated_ns,
    undilated_span,
)

GBIT = 10**9


@pytest.mark.parametrize(
    ("demand_bps", "capacity_bps", "dilation"),
    [
        (0, GBIT, 1.0),
        (800_000_000, GBIT, 1.0),
        (800_000_001, GBIT, 1.1),
        (880_000_000, GBIT, 1.1),
        (4 * GBIT, GBIT, 5.0),
        (8 * GBIT, GBIT, 10.0),
    ],
)
def test_auto_is_the_least_dilation_that_leaves_a_fifth_of_the_capacity(
    demand_bps: int, capacity_bps: int, dilation: float
) -> None:
    assert choose_dilation(demand_bps, capacity_bps, "auto") == dilation


@given(st.integers(0, 10**13), st.integers(1, 10**12))
def test_auto_fits_and_a_tenth_less_would_not(demand_bps: int, capacity_bps: int) -> None:
    try:
        dilation = choose_dilation(demand_bps, capacity_bps, "auto")
    except CapacityError:
        assert demand_bps > 8 * capacity_bps
        return
    tenths = round(dilation * 10)
    assert dilation == tenths / 10 >= 1
    assert demand_bps * 100 <= 8 * tenths * capacity_bps
    assert tenths == 10 or demand_bps * 100 > 8 * (tenths - 1) * capacity_bps


def test_a_configured_dilation_is_returned_unchanged() -> None:
    assert choose_dilation(100 * GBIT, GBIT, 20.0) == 20.0
    assert choose_dilation(0, GBIT, 3) == 3.0


def test_auto_raises_capacity_error_above_its_largest_dilation() -> None:
    with pytest.raises(CapacityError) as caught:
        choose_dilation(123_456_789_012, GBIT + 17, "auto")
    text = str(caught.value)
    assert text.isprintable()
    assert text.startswith(
        "dilation: the links in use ask for 123Gbit at once, more than 800Mbit, 80 % of the 1Gbit that this machine "
        "carries, which "
    )
    assert "a dilation of 154.4, more than the 10" in text
    assert text.endswith("lower node_pair_rate, rate or intra.rate, or give a number in dilation")


@pytest.mark.parametrize("capacity_bps", [0, -5])
def test_capacity_not_above_zero_raises_value_error(capacity_bps: int) -> None:
    with pytest.raises(ValueError, match="no measurement"):
        choose_dilation(1, capacity_bps, "auto")


@dataclass(frozen=True)
class Derived:
    """A factor, and the one at which it was derived."""

    factor: float
    at: float


def deriving(*factors: float) -> Callable[[float], Derived]:
    """Return what asks for these factors in turn, and fails when it is asked once more."""
    left = iter(factors)
    return lambda at: Derived(next(left), at)


@pytest.mark.parametrize(
    ("asked_for", "settled"),
    [
        ([1.0], Derived(1.0, at=1.0)),
        ([2.0, 1.7], Derived(2.0, at=1.0)),
        ([2.0, 2.0], Derived(2.0, at=1.0)),
        ([2.0, 3.2, 2.5], Derived(3.2, at=2.0)),
    ],
    ids=["enough at once", "enough with it", "just enough with it", "not enough with it"],
)
def test_the_first_dilation_that_suffices_at_itself_is_taken(asked_for: list[float], settled: Derived) -> None:
    decide = deriving(*asked_for)
    assert settled_dilation(decide) == settled
    with pytest.raises(StopIteration):
        decide(settled.factor)


def test_what_carries_ever_less_is_not_measured_for_ever() -> None:
    assert settled_dilation(deriving(1.1, 1.3, 1.7, 2.0, 2.5)) == Derived(2.5, at=2.0)


@given(st.integers(0, 10**15), st.sampled_from([1.0, 1.1, 2.5, 10.0, 100.0]))
def test_undilated_reverses_dilated(duration_ns: int, dilation: float) -> None:
    assert abs(undilated_ns(dilated_ns(duration_ns, dilation), dilation) - duration_ns) <= 1


@given(st.lists(st.integers(0, 10**15), min_size=2), st.floats(1, 100))
def test_undilated_keeps_the_order_of_times(times_ns: list[int], dilation: float) -> None:
    undone = [undilated_ns(time_ns, dilation) for time_ns in sorted(times_ns)]
    assert undone == sorted(undone)
    assert all(
        math.isclose(now * dilation, then, abs_tol=dilation) for now, then in zip(undone, sorted(times_ns), strict=True)
    )


def test_a_span_in_the_experiments_time_keeps_everything_but_its_times() -> None:
    span = Span("send", 2, 5, 3_000, 9_000, 77, "west-0")
    assert undilated_span(span, 3.0) == Span("send", 2, 5, 1_000, 3_000, 77, "west-0")
