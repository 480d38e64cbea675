import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.refused import refused
from wanbed.ground.errors import InputError
from wanbed.runner.validation.agreement import (
    Agreement,
    Compared,
    DrawnResult,
    RandomAgreement,
    read_agreement,
    read_random_agreement,
    write_agreement,
    write_random_agreement,
)
from wanbed.runner.validation.comparison import VariantComparison

COMPARISON = VariantComparison(0, {"topology.wan.latency": "40ms"}, "gpipe", 1, 30.0, 30.0, 30.0, 30.3, ("a caution",))


def agreement(*errors: float) -> Agreement:
    found = tuple(replace(COMPARISON, simulated_s=30.0 * (1 + error)) for error in errors)
    return Agreement((Compared("headline", "headline-1", found),))


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    first = agreement(0.01, -0.02)
    assert read_agreement(write_agreement(tmp_path, first).parent) == first


def test_limits_are_2_percent_in_the_median_and_5_in_each() -> None:
    assert agreement(0.019, -0.019, 0.049, 0.0).failures == ()
    assert agreement(0.0, 0.0, -0.051).failures == (
        "1 of 3 simulated iteration times are more than 5% off those in virtual time.",
    )
    assert agreement(0.021, 0.022, -0.023).failures == ("The median error against virtual time is 2.2%, more than 2%.",)


def test_nothing_compared_is_no_agreement() -> None:
    with pytest.raises(ValueError, match="nothing was compared"):
        Agreement(())


@pytest.mark.parametrize(
    ("read", "command"),
    [(read_agreement, "make paper writes it"), (read_random_agreement, "wanbed validate --random N --drawn")],
)
def test_a_missing_agreement_names_the_command_that_makes_it(
    tmp_path: Path, read: Callable[[Path], object], command: str
) -> None:
    with pytest.raises(InputError, match=rf"agreement.json: no such file: {command}"):
        read(tmp_path)


@pytest.mark.parametrize("document", [{}, {"experiments": [{}]}, {"experiments": 1}, {"experiments": []}])
def test_an_invalid_agreement_raises_one_line(tmp_path: Path, document: Any) -> None:
    (tmp_path / "agreement.json").write_text(json.dumps(document))
    assert "agreement.json: is not what make paper writes" in refused(lambda: read_agreement(tmp_path))


def drawn(*errors: float, failed: int = 0, missing: int = 0) -> RandomAgreement:
    results = tuple(
        DrawnResult(number, f"random-1-{number:03d}", ("gpipe",), 10.0, 10.0 * (1 + error), ("a caution",))
        for number, error in enumerate(errors)
    )
    reasons = {len(errors) + number: "it is stuck" for number in range(failed)}
    return RandomAgreement(1, len(errors) + failed + missing, results, reasons)


def test_what_was_written_of_random_experiments_is_read_back(tmp_path: Path) -> None:
    first = drawn(0.01, -0.02, failed=1)
    assert read_random_agreement(write_random_agreement(tmp_path, first).parent) == first


def test_one_in_twenty_may_be_beyond_5_percent() -> None:
    assert drawn(*[0.0] * 19, 0.4).failures == ()
    assert drawn(*[0.0] * 18, 0.4, -0.4).failures == ("90.0% of the random experiments are within 5%, fewer than 95%.",)


def test_their_median_may_be_2_percent() -> None:
    assert drawn(0.019, -0.019, 0.04).failures == ()
    assert drawn(0.021, -0.021, 0.0).failures == ("The median error of random experiments is 2.1%, more than 2%.",)


def test_failed_and_missing_experiments_are_reported() -> None:
    assert drawn(0.0, failed=1, missing=2).failures == (
        "1 of 4 random experiments did not finish.",
        "2 of 4 random experiments were not run.",
    )


def test_nothing_run_is_no_agreement() -> None:
    nothing = drawn(missing=3)
    assert (nothing.median_error, nothing.share_within) == (None, None)
    assert nothing.failures == ("3 of 3 random experiments were not run.",)


def test_the_farthest_off_comes_first() -> None:
    found = drawn(0.06, -0.2, 0.01, 0.11)
    assert [result.number for result in found.beyond(0.05)] == [1, 3, 0]
    assert [result.number for result in found.beyond(0.10)] == [1, 3]


@pytest.mark.parametrize("text", ["{}", '{"seed": 1, "asked": 1, "experiments": [1], "failed": {}}'])
def test_another_document_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "agreement.json").write_text(text)
    assert "agreement.json: is not what wanbed validate --random writes" in refused(
        lambda: read_random_agreement(tmp_path)
    )
