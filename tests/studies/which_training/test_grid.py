import pytest

from studies.which_training.grid import Grid, SettingPrice, over_wan
from studies.which_training.setting import TOKENS, Method, Wan

NEAR, FAR = Wan(10, 1_000_000_000), Wan(100, 1_000_000_000)
GRID = Grid.of(
    [
        SettingPrice(Method.VARUNA, "slow", NEAR, 40, 1),
        SettingPrice(Method.VARUNA, "quick", NEAR, 20, 1),
        SettingPrice(Method.VARUNA, "as quick", NEAR, 20, 1),
        SettingPrice(Method.ONE, "alone", NEAR, 15, 0),
        SettingPrice(Method.DILOCO, "seldom", NEAR, 5, 1),
        SettingPrice(Method.VARUNA, "far", FAR, 90, 1),
    ]
)


def test_a_method_is_worth_its_fastest_setting_and_of_two_the_one_tried_first() -> None:
    assert GRID.price(NEAR, Method.VARUNA).label == "quick"
    assert GRID.price(FAR, Method.VARUNA).label == "far"


def test_the_fastest_is_that_of_the_methods_asked_for_at_that_wan() -> None:
    assert GRID.fastest(NEAR).method is Method.DILOCO
    assert GRID.fastest(NEAR, lambda method: method.synchronous).method is Method.ONE
    assert GRID.fastest(NEAR, lambda method: method.synchronous and over_wan(method)).method is Method.VARUNA
    assert GRID.fastest(FAR).method is Method.VARUNA


def test_methods_within_a_hundredth_of_the_fastest_count_as_equally_fast() -> None:
    close = Grid.of(
        SettingPrice(method, "", NEAR, seconds, 1)
        for method, seconds in ((Method.VARUNA, 10.0), (Method.ATLAS, 10.09), (Method.ATOM, 10.2))
    )
    assert [price.method for price in close.as_fast(NEAR)] == [Method.ATLAS, Method.VARUNA]
    assert [price.method for price in close.as_fast(NEAR, lambda method: not method.synchronous)] == [Method.ATOM]


def test_at_the_break_even_both_take_as_long_for_the_same_loss() -> None:
    times = GRID.break_even(NEAR, lambda _: True)
    local, synchronous = GRID.price(NEAR, Method.DILOCO), GRID.price(NEAR, Method.ONE)
    tokens = 1e9
    assert times * tokens / local.tokens_per_s == pytest.approx(tokens / synchronous.tokens_per_s)
    assert GRID.break_even(NEAR, over_wan) == pytest.approx(4)


def test_tokens_a_second_are_those_of_an_iteration_over_its_time() -> None:
    assert GRID.price(NEAR, Method.DILOCO).tokens_per_s == TOKENS / 5


def test_a_method_that_was_not_priced_is_no_answer() -> None:
    with pytest.raises(KeyError):
        GRID.price(FAR, Method.ATOM)


def test_an_iteration_without_time_is_refused() -> None:
    with pytest.raises(ValueError, match="takes time"):
        SettingPrice(Method.ATOM, "none", NEAR, 0, 0)
