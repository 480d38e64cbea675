"""What a check takes from runs: the setting that the map chose, and the mean of its iterations."""

import pytest

from studies.which_training.candidates import candidates
from studies.which_training.grid import Grid, SettingPrice
from studies.which_training.setting import WANS, Method, Wan
from studies.which_training.virtual_check.checking import CHECKED, Checked, chosen_at

WAN = Wan(10, 1_000_000_000)


def test_the_fastest_setting_of_every_method_is_checked() -> None:
    prices = [
        SettingPrice(method, candidate.label, WAN, 1.0 + (candidate != candidates(method, WAN)[-1]), 0.0)
        for method in Method
        for candidate in candidates(method, WAN)
    ]
    assert chosen_at(Grid.of(prices), [WAN]) == [candidates(method, WAN)[-1] for method in Method]


def test_wans_that_are_checked_are_on_the_map() -> None:
    assert set(CHECKED) <= set(WANS)


def test_a_simulation_that_is_too_fast_misses_below_zero() -> None:
    assert Checked(WAN, Method.ATLAS, "one", 2.0, 1.9, ()).miss == pytest.approx(-0.05)
