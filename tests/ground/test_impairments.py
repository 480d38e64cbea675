from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.impairments import IMPAIRMENTS, NOT_SIMULATED, UNIMPAIRED, Impairments

ANY = st.builds(Impairments, jitter_ns=st.integers(0, 10**10), loss=st.floats(0, 1))


def test_link_has_no_impairments_by_default() -> None:
    assert Impairments() == UNIMPAIRED
    assert not any(value for _, value in UNIMPAIRED.items())


def test_an_impairment_is_named_by_its_field_without_the_unit() -> None:
    assert [(each.field, each.name, each.column) for each in IMPAIRMENTS] == [
        ("jitter_ns", "jitter", "jitter_ms"),
        ("loss", "loss", "loss"),
    ]


def test_columns_have_durations_in_milliseconds() -> None:
    asked = {each.column: each.in_column(value) for each, value in Impairments(1_500_000, 0.25).items()}
    assert asked == {"jitter_ms": 1.5, "loss": 0.25}


def test_the_simulator_has_all_of_them() -> None:
    assert NOT_SIMULATED == ()


@given(ANY)
def test_delays_spread_by_jitter_and_loss_picks_packets(impairments: Impairments) -> None:
    assert impairments.delay_spread_ns == impairments.jitter_ns
    assert impairments.picks_packets is (impairments.loss > 0)


@given(ANY, st.floats(1, 100))
def test_dilation_stretches_durations_and_leaves_fractions(impairments: Impairments, factor: float) -> None:
    slow = impairments.dilated(factor)
    assert slow == Impairments(round(impairments.jitter_ns * factor), impairments.loss)


@given(ANY)
def test_rounding_keeps_nine_decimals_of_fractions_and_all_of_durations(impairments: Impairments) -> None:
    assert impairments.rounded() == Impairments(impairments.jitter_ns, round(impairments.loss, 9))
