from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.runner.emulated_run import constant, write_run
from wanbed.results import load
from wanbed.runner.validation.case import LawCheck
from wanbed.runner.validation.comparison import VariantComparison
from wanbed.runner.validation.golden import GOLDEN_VALUES
from wanbed.runner.validation.validation import Validation, validate_simulator

EXACT = LawCheck("case", "law", (5,), (5,))
INEXACT = replace(EXACT, simulated_ns=(6,))


def comparison(error: float) -> VariantComparison:
    return VariantComparison(0, {}, "gpipe", 1, 1.0, 1.0, 1.0, 1 + error)


def errors(*found: float) -> Validation:
    return Validation((EXACT,), (EXACT,), tuple(comparison(error) for error in found))


def test_without_a_run_exact_values_suffice() -> None:
    assert errors().failures == ()


@pytest.mark.parametrize("name", ["golden", "closed_forms"])
def test_one_value_that_is_not_exact_fails(name: str) -> None:
    validation = replace(errors(), **{name: (EXACT, INEXACT)})
    assert validation.failures == (
        f"1 of 2 {name.replace('_', ' ').replace('golden', 'golden values')} are not exact.",
    )


def test_an_error_of_more_than_5_percent_fails_in_either_direction() -> None:
    assert errors(0.049, -0.049, 0.0, 0.0, 0.0).failures == ()
    for error in (0.051, -0.051):
        assert errors(error, 0.0, 0.0).failures == (
            "1 of 3 simulated iteration times are more than 5% off the emulated ones.",
        )


def test_a_median_error_of_more_than_3_percent_fails() -> None:
    assert errors(-0.029, 0.029, 0.029).failures == ()
    assert errors(-0.04, 0.04, 0.0).failures == ("The median error is 4.0%, more than 3%.",)


def test_the_worst_is_the_farthest_off_in_either_direction() -> None:
    assert errors(0.01, -0.02, 0.0).worst.error == pytest.approx(-0.02)


def test_there_is_no_median_of_nothing() -> None:
    with pytest.raises(ValueError, match="no emulated run"):
        _ = errors().median_error


def test_every_golden_value_and_every_trial_is_simulated(tmp_path: Path) -> None:
    """The closed forms look for transfers, which the stand-in for the simulator has none of."""
    run = load(write_run(tmp_path, {(0, "gpipe"): [2.0], (1, "1f1b"): [2.0]}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wanbed.runner.validation.validation.CLOSED_FORMS", (lambda _: EXACT,))
        validation = validate_simulator(run, constant(2.0))
    assert (len(validation.golden), validation.closed_forms) == (len(GOLDEN_VALUES), (EXACT,))
    assert [each.error for each in validation.comparisons] == [0.0, 0.0]
