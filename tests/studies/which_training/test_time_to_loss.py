import pytest

from studies.which_training.grid import Grid, SettingPrice
from studies.which_training.learning import DATA_PARALLEL, Curve
from studies.which_training.setting import Method, Wan
from studies.which_training.time_to_loss import LossTimes, learning_text

WAN = Wan(50, 1_000_000_000)
GRID = Grid.of(SettingPrice(method, "", WAN, 10.0 + position, 1) for position, method in enumerate(Method))
CURVES = [
    Curve(learner, 0.001, seed, ((5, 4.0), (10 + slower + 5 * seed, 3.0)))
    for learner, slower in ((DATA_PARALLEL, 0), (Method.DILOCO, 10), (Method.STREAMING, 20), (Method.ATOM, 30))
    for seed in range(3)
]
TIMES = LossTimes.of(GRID, CURVES)


def test_the_time_to_a_loss_is_iterations_to_it_times_the_simulated_iteration() -> None:
    assert TIMES.loss == 3.0
    assert TIMES.iterations(Method.VARUNA) == (15, 10, 20)
    assert TIMES.time_s(Method.VARUNA, WAN) == 15 * GRID.price(WAN, Method.VARUNA).iteration_s
    assert TIMES.time_s(Method.DILOCO, WAN) == 25 * GRID.price(WAN, Method.DILOCO).iteration_s


def test_soonest_are_all_whose_seeds_overlap_with_those_of_the_soonest() -> None:
    # One datacenter takes 100 to 200 s, the other synchronous methods 110 to 260 s, and DiLoCo 280 s at least.
    assert TIMES.soonest(WAN) == (Method.ONE, Method.ATLAS, Method.VARUNA, Method.HIERARCHICAL)


def test_the_tables_say_what_iterations_are_worth_and_the_joined_times() -> None:
    text = learning_text(TIMES)
    assert "| DiLoCo | 0.001 | 25 (20 to 30) | 1.67x |" in text
    assert "| Varuna | 3.0 |" in text
    assert "3.00" in text


def test_a_loss_that_a_method_never_reached_has_no_time() -> None:
    with pytest.raises(ValueError, match="no loss"):
        LossTimes(GRID, CURVES, 2.0).time_s(Method.VARUNA, WAN)
