"""Losses over time, and what is read from them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.metrics.loss_curve import LossCurve, counted_until

finite = st.floats(0.01, 100, allow_nan=False)


@st.composite
def curves(draw: st.DrawFn) -> LossCurve:
    losses = draw(st.lists(finite, min_size=1, max_size=20))
    steps = draw(st.lists(st.floats(0, 10), min_size=len(losses), max_size=len(losses)))
    time_s = np.cumsum(steps)
    return LossCurve(np.arange(len(losses)), np.array(losses), time_s, float(time_s[-1]))


def curve(losses: list[float], time_s: list[float]) -> LossCurve:
    return LossCurve(np.arange(len(losses)), np.array(losses), np.array(time_s), time_s[-1])


def test_the_loss_at_a_time_is_that_of_the_last_iteration_that_had_ended() -> None:
    own = curve([4.0, 3.0, 3.5], [1.0, 2.0, 3.0])
    assert [own.loss_at(at) for at in (0.9, 1.0, 1.9, 2.5, 3.0, 3.1)] == [None, 4.0, 4.0, 3.0, 3.5, None]


def test_the_time_to_a_loss_is_the_end_of_the_first_iteration_that_reached_it() -> None:
    own = curve([4.0, 3.0, 3.5, 2.0], [1.0, 2.0, 3.0, 4.0])
    assert [own.time_to_s(loss) for loss in (4.0, 3.6, 3.0, 2.9, 1.9)] == [1.0, 2.0, 2.0, 4.0, None]


def test_a_training_that_diverged_has_no_loss_and_reaches_none() -> None:
    own = curve([4.0, float("nan")], [1.0, 2.0])
    assert own.loss_at(2.0) is None
    assert own.time_to_s(3.0) is None


@given(curves(), finite)
def test_at_the_time_to_a_loss_that_loss_has_been_reached(own: LossCurve, loss: float) -> None:
    reached = own.time_to_s(loss)
    if reached is None:
        assert own.loss.min() > loss
    else:
        assert min(own.loss[own.time_s <= reached]) <= loss
        assert not np.any(own.loss[own.time_s < reached] <= loss)


@given(curves(), finite, finite)
def test_a_lower_loss_never_takes_less_time(own: LossCurve, one: float, other: float) -> None:
    low, high = (own.time_to_s(loss) for loss in sorted((one, other)))
    assert low is None or (high is not None and high <= low)


@given(curves(), st.floats(0.1, 10), finite)
def test_a_clock_that_is_so_many_times_slower_makes_every_time_so_many_times_longer(
    own: LossCurve, factor: float, loss: float
) -> None:
    slower = LossCurve(own.iterations, own.loss, own.time_s * factor, own.end_s * factor)
    one, other = own.time_to_s(loss), slower.time_to_s(loss)
    assert (one is None) == (other is None)
    assert one is None or other == pytest.approx(one * factor)


def test_between_two_readings_a_counter_rises_evenly() -> None:
    counted = counted_until(np.array([100, 200, 400]), np.array([0, 10, 50]), np.array([50, 150, 300, 500]))
    assert counted.tolist() == [0, 5, 30, 50]


def test_values_of_other_iterations_are_refused() -> None:
    with pytest.raises(ValueError, match="2 values for 1 iterations"):
        LossCurve(np.array([0]), np.array([1.0, 2.0]), np.array([1.0]), 1.0)
    with pytest.raises(ValueError, match="do not rise"):
        LossCurve(np.array([1, 0]), np.array([1.0, 2.0]), np.array([1.0, 2.0]), 2.0)
