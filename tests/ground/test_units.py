import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground import units


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


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (40, "40 has no unit: write a duration like 40ms"),
        (["1ms", "2ms"], "['1ms', '2ms'] is not a duration: write it like 40ms"),
        ({"a": "1ms"}, "{'a': '1ms'} is not a duration: write it like 40ms"),
        (None, "null is not a duration: write it like 40ms"),
    ],
)
def test_only_a_number_is_said_to_lack_a_unit(written: object, text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}"):
        units.parse_duration_ns(written)


def test_negative_quantities_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        units.parse_duration_ns("-1ms")
    with pytest.raises(ValueError, match="above 100%"):
        units.parse_fraction("101%")


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="unlimited"):
        units.parse_rate_bps("0bit")


@pytest.mark.parametrize(
    ("parse", "largest", "value", "beyond"),
    [
        (units.parse_duration_ns, "86400s", 86_400 * 10**9, ["86401s", "86400000000001ns", "10000000000s"]),
        (units.parse_rate_bps, "1000Tbit", 10**15, ["1001Tbit", "1000000000000001bit"]),
        (units.parse_size_bytes, "4096GiB", 2**42, ["4097GiB", "10000GB", "4398046511105B"]),
    ],
)
def test_a_quantity_above_its_bound_is_refused_and_the_bound_named(parse, largest, value, beyond) -> None:
    assert parse(largest) == value
    for text in beyond:
        with pytest.raises(ValueError, match=f"^'{text}' is above {largest}, .*: give less$"):
            parse(text)


PARSERS = [units.parse_duration_ns, units.parse_rate_bps, units.parse_size_bytes, units.parse_fraction]
UNITS = {units.parse_duration_ns: "s", units.parse_rate_bps: "Gbit", units.parse_size_bytes: "GB"}


@pytest.mark.parametrize("digits", [60, 400, 5000, 10**6])
@pytest.mark.parametrize("parse", UNITS)
def test_any_number_of_digits_is_refused_in_a_short_line(parse, digits: int) -> None:
    for text in ("9" * digits + UNITS[parse], "0." + "0" * digits + "1" + UNITS[parse]):
        with pytest.raises(ValueError, match=rf"has {len(text)} characters, .* at most 60: write it like") as refused:
            parse(text)
        assert len(str(refused.value)) < 200


numbers = st.from_regex(r"[+-]?[0-9]{1,80}([.][0-9]{1,80})?", fullmatch=True)
known_units = st.sampled_from(["ns", "s", "bit", "Tbit", "bps", "B", "GB", "GiB", "%", "µs", "x", ""])


@pytest.mark.parametrize("parse", PARSERS)
@given(text=st.text() | st.builds("{}{}{}".format, numbers, st.sampled_from(["", " ", "\n"]), known_units))
def test_any_text_is_a_value_within_its_bound_or_a_refusal_of_one_short_line(parse, text: str) -> None:
    bounds = {
        units.parse_duration_ns: units.MAX_DURATION_NS,
        units.parse_rate_bps: units.MAX_RATE_BPS,
        units.parse_size_bytes: units.MAX_SIZE_BYTES,
        units.parse_fraction: 1,
    }
    value, refusal = 0, ""
    try:
        value = parse(text)
    except ValueError as refused:
        refusal = str(refused)
    assert value is None or 0 <= value <= bounds[parse]
    assert len(refusal) < 400
    assert "\n" not in refusal


@given(st.integers(min_value=0, max_value=units.MAX_DURATION_NS))
def test_printed_durations_parse_to_the_same_value(duration_ns: int) -> None:
    assert units.parse_duration_ns(units.format_duration(duration_ns)) == duration_ns


@given(st.integers(min_value=1, max_value=units.MAX_RATE_BPS))
def test_printed_rates_parse_to_the_same_value(rate_bps: int) -> None:
    assert units.parse_rate_bps(units.format_rate(rate_bps)) == rate_bps


@given(st.integers(min_value=0, max_value=units.MAX_SIZE_BYTES))
def test_printed_sizes_parse_to_the_same_value(size_bytes: int) -> None:
    assert units.parse_size_bytes(units.format_size(size_bytes)) == size_bytes


@given(st.integers(min_value=0, max_value=10_000))
def test_printed_fractions_parse_to_the_same_value(hundredths_of_percent: int) -> None:
    fraction = hundredths_of_percent / 10_000
    assert units.parse_fraction(units.format_fraction(fraction)) == pytest.approx(fraction)


def test_digits_of_another_script_are_refused() -> None:
    """They look like others to a reader, such as an Arabic one like a bar."""
    with pytest.raises(ValueError, match="is not a duration"):
        units.parse_duration_ns("\u0661ms")
