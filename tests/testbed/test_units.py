import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import units


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [("40ms", 40_000_000), ("50us", 50_000), ("0.25ms", 250_000), ("2 s", 2_000_000_000), ("0ms", 0), ("7ns", 7)],
)
def test_durations_are_nanoseconds(text: str, duration_ns: int) -> None:
    assert units.parse_duration_ns(text) == duration_ns


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [("5Gbit", 5_000_000_000), ("2.5Gbit", 2_500_000_000), ("100Gbit", 10**11), ("200Mbit/s", 2 * 10**8)],
)
def test_rates_are_bits_per_second(text: str, rate_bps: int) -> None:
    assert units.parse_rate_bps(text) == rate_bps


def test_unlimited_is_a_rate() -> None:
    assert units.parse_rate_bps("unlimited") is None
    assert units.format_rate(None) == "unlimited"


@pytest.mark.parametrize("parse", [units.parse_duration_ns, units.parse_rate_bps, units.parse_size_bytes])
@pytest.mark.parametrize("bare", [40, 1.5, "40", True, None, [], "nonsense", "5 parsecs", ""])
def test_what_has_no_known_unit_is_refused(parse: object, bare: object) -> None:
    with pytest.raises(ValueError, match="like"):
        parse(bare)  # type: ignore[operator]


def test_negative_quantities_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        units.parse_duration_ns("-1ms")
    with pytest.raises(ValueError, match="above 100%"):
        units.parse_fraction("101%")


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="unlimited"):
        units.parse_rate_bps("0bit")


@given(st.integers(min_value=0, max_value=10**15))
def test_printed_durations_parse_to_the_same_value(duration_ns: int) -> None:
    assert units.parse_duration_ns(units.format_duration(duration_ns)) == duration_ns


@given(st.integers(min_value=1, max_value=10**14))
def test_printed_rates_parse_to_the_same_value(rate_bps: int) -> None:
    assert units.parse_rate_bps(units.format_rate(rate_bps)) == rate_bps


@given(st.integers(min_value=0, max_value=2**40))
def test_printed_sizes_parse_to_the_same_value(size_bytes: int) -> None:
    assert units.parse_size_bytes(units.format_size(size_bytes)) == size_bytes


@given(st.integers(min_value=0, max_value=10_000))
def test_printed_fractions_parse_to_the_same_value(hundredths_of_percent: int) -> None:
    fraction = hundredths_of_percent / 10_000
    assert units.parse_fraction(units.format_fraction(fraction)) == pytest.approx(fraction)
