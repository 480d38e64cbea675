"""The simulator gives every closed form exactly."""

import pytest

from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.validation import closed_forms
from wanbed.runner.validation.case import ClosedForm
from wanbed.runner.validation.closed_forms import CLOSED_FORMS, MS


@pytest.mark.parametrize("closed_form", CLOSED_FORMS, ids=lambda closed_form: closed_form.__name__)
def test_the_simulator_gives_every_closed_form_exactly(closed_form: ClosedForm) -> None:
    check = closed_form(simulate_variant)
    assert check.simulated_ns == check.expected_ns


def test_sharing_gives_four_pipelines_their_first_activations_in_turn() -> None:
    shared = closed_forms.temporal_sharing(simulate_variant)
    assert shared.simulated_ns == (100 * MS, 200 * MS, 300 * MS, 400 * MS)
    assert closed_forms.no_sharing(simulate_variant).simulated_ns == (400 * MS,) * 4


def test_two_pairs_of_60_on_a_trunk_of_90_get_45_each() -> None:
    (first_ns, second_ns) = closed_forms.trunk_is_shared(simulate_variant).simulated_ns
    assert first_ns == second_ns
    assert 5_625_000 * 8 / ((first_ns - 20 * MS) / 1e9) == pytest.approx(45e6)
