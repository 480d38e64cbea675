"""What a simulated trial records of how far simulations like it are off."""

from dataclasses import replace

import pytest

from wanbed.results.reading.known_misses import MAX_NAMED, KnownMiss, known_misses_of, known_misses_text
from wanbed.results.records.documents import TrialFacts

TRUNK = KnownMiss("full-trunk", "node pairs together fill a trunk", -0.17, 0.07, 55)
BACKGROUND = KnownMiss("background", "flows share the WAN", -0.22, 0.0, 9, "goodput of a flow")


def test_it_says_what_was_compared_its_range_and_over_how_many_trials() -> None:
    assert known_misses_text([TRUNK, BACKGROUND, TRUNK]).replace("\u00a0", " ") == (
        "full-trunk: node pairs together fill a trunk (iteration times simulated 17 % too fast to 7 % too slow, over "
        "55 trials) and background: flows share the WAN (goodput of a flow simulated up to 22 % too low, over 9 trials)"
    )
    assert not known_misses_text([])


def test_of_many_the_first_few_are_named() -> None:
    many = [replace(TRUNK, name=f"{number}", what=f"kind {number}") for number in range(MAX_NAMED + 3)]
    assert known_misses_text(many).endswith(
        f"kind {MAX_NAMED - 1} (iteration times simulated 17 % too fast to 7 % too slow, over 55 trials) and 3 more"
    )


def test_a_mark_names_the_row_of_the_table_and_which_way_simulations_err() -> None:
    assert TRUNK.mark == "full-trunk (iteration times simulated 17 % too fast to 7 % too slow)"
    assert BACKGROUND.mark == "background (goodput of a flow simulated up to 22 % too low)"
    assert replace(TRUNK, low=0.0).errs_text == "simulated up to 7 % too slow"


def test_it_is_read_as_it_was_recorded_and_a_record_of_it_is_sound() -> None:
    facts = {"sweep_point": 0, "variant": "a", "repeat": 0, "known_misses": [TRUNK.document(), BACKGROUND.document()]}
    assert known_misses_of(TrialFacts.model_validate(facts).model_dump()) == (TRUNK, BACKGROUND)


def test_a_trial_of_an_older_version_says_nothing() -> None:
    facts = {"sweep_point": 0, "variant": "a", "repeat": 0}
    assert known_misses_of(facts) == known_misses_of(TrialFacts.model_validate(facts).model_dump()) == ()


@pytest.mark.parametrize(("low", "high", "cells"), [(0.1, 0.2, 5), (-0.2, -0.1, 5), (-0.1, 0.1, 0)])
def test_a_range_without_zero_or_from_nothing_is_refused(low: float, high: float, cells: int) -> None:
    with pytest.raises(ValueError, match="is no range with 0"):
        KnownMiss("name", "what", low, high, cells)
