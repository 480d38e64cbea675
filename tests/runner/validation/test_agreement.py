import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wanbed.ground.strict_model import InputError
from wanbed.runner.validation.agreement import Agreement, Compared, read_agreement, write_agreement
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


def test_a_missing_agreement_names_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"agreement.json: no such file: make paper writes it"):
        read_agreement(tmp_path)


@pytest.mark.parametrize("document", [{}, {"experiments": [{}]}, {"experiments": 1}, {"experiments": []}])
def test_an_invalid_agreement_raises_one_line(tmp_path: Path, document: Any) -> None:
    (tmp_path / "agreement.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"agreement.json: is not what make paper writes") as refusal:
        read_agreement(tmp_path)
    assert "\n" not in str(refusal.value)
