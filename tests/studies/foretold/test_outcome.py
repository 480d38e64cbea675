import pytest

from studies.foretold.outcome import Tally, as_first_read, counted
from tests.studies.foretold.outcomes import outcome


def test_the_error_is_what_is_simulated_over_what_was_published() -> None:
    assert outcome(2.0, 2.1).error == pytest.approx(0.05)
    assert outcome(2.0, 1.5).error == -0.25
    assert outcome(2.0, 1.92).met
    assert not outcome(2.0, 2.12).met


def test_a_tally_has_the_median_of_sizes_the_worst_with_its_sign_and_the_share_met() -> None:
    tally = Tally.of([outcome(1.0, simulated) for simulated in (1.01, 0.97, 0.7, 1.2)])
    assert tally.rows == 4
    assert tally.median == pytest.approx(0.115)
    assert tally.worst == pytest.approx(-0.3)
    assert (tally.met, tally.share_met) == (2, 0.5)


def test_foretold_and_explained_rows_are_counted_apart() -> None:
    both = [outcome(1.0, 1.0), outcome(1.0, 2.0, counted="explained"), outcome(1.0, 3.0, counted="tried")]
    assert [each.simulated for each in counted(both, "foretold")] == [1.0]
    assert [each.simulated for each in counted(both, "explained")] == [2.0]


def test_a_text_that_was_read_wrongly_counts_as_it_was_first_read() -> None:
    twice = ("foretold", "misread", "explained")
    every = [
        outcome(1.0, 1.0),
        outcome(1.0, 2.0, counted="explained"),
        outcome(1.0, 3.0, kinds=twice),
        outcome(1.0, 4.0, counted="misread", kinds=twice),
        outcome(1.0, 5.0, counted="explained", kinds=twice),
        outcome(1.0, 6.0, counted="explained", kinds=("explained", "tried")),
    ]
    assert [each.simulated for each in as_first_read(every)] == [1.0, 4.0]
