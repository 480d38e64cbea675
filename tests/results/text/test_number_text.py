import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.text import number_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.2345, "1.23"),
        (12.345, "12.3"),
        (123.45, "123"),
        (1234.5, "1,234"),
        (0.012345, "0.0123"),
        (0, "0"),
        (9.999, "10.0"),
        (0.09999, "0.100"),
        (99.96, "100"),
        (-2.5, "-2.50"),
    ],
)
def test_three_significant_digits_are_kept(value: float, text: str) -> None:
    assert number_text.three_digits(value) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(None, "n/a"), (0.5, "0.500"), (12, "12.0"), (8_503, "8.50 thousand"), (29.2e6, "29.2 million")],
)
def test_large_amounts_have_a_word_for_their_unit(amount: float | None, text: str) -> None:
    assert number_text.amount_text(amount).replace("\u00a0", " ") == text


@given(st.floats(min_value=1e-9, max_value=1e9))
def test_what_is_printed_is_within_half_a_percent(value: float) -> None:
    assert float(number_text.three_digits(value).replace(",", "")) == pytest.approx(value, rel=0.00501)


def test_units_follow_the_size() -> None:
    assert number_text.seconds_text(1.5) == "1.50\u00a0s"
    assert number_text.seconds_text(0.0456) == "45.6\u00a0ms"
    assert number_text.seconds_text(0.9999) == "1.00\u00a0s"
    assert number_text.seconds_text(0.3 - 0.1 - 0.2) == number_text.seconds_text(0.0)
    assert number_text.size_text(1_210_000_000) == "1.21\u00a0GB"
    assert number_text.rate_text(198e6) == "198\u00a0Mbit/s"
    assert number_text.rate_text(12) == "12.0\u00a0bit/s"
    assert number_text.milliseconds_text(0.02) == "0.0200\u00a0ms"


def test_fractions_and_ratios() -> None:
    assert number_text.percent_text(0.632) == "63.2\u00a0%"
    assert number_text.ratio_text(2.04) == "2.04x"


@pytest.mark.parametrize("unknown", [None, float("nan")])
def test_an_unknown_figure_is_n_a(unknown: float | None) -> None:
    texts = (number_text.seconds_text, number_text.size_text, number_text.percent_text, number_text.ratio_text)
    assert [text(unknown) for text in texts] == ["n/a"] * 4


def test_counts_and_lists_read_as_words() -> None:
    assert number_text.count_text(1, "trial") == "1 trial"
    assert number_text.count_text(3, "trial") == "3 trials"
    assert [number_text.list_text(list("abc"[:n])) for n in range(4)] == ["", "a", "a and b", "a, b and c"]


@pytest.mark.parametrize(
    ("interval_s", "text"),
    [((1.5, 2.0), "1.50 s to 2.00 s"), ((22.191, 22.212), "22.19 s to 22.21 s"), ((1.0, 1.0), "1.00 s to 1.00 s")],
)
def test_an_interval_has_the_digits_that_its_ends_need_to_differ(interval_s: tuple[float, float], text: str) -> None:
    assert number_text.seconds_interval_text(interval_s).replace("\u00a0", " ") == text


def test_a_long_name_keeps_its_ends() -> None:
    assert number_text.shortened("atlas", 5) == "atlas"
    assert number_text.shortened("varuna, large window", 12) == "varuna,…ndow"
    assert number_text.shortened("\u202ex", 20) == "[U+202E]x"


def test_invisible_characters_are_spelled_out() -> None:
    assert number_text.visible("a\u202eb\x07c\u2066\td\re\n") == "a[U+202E]b[U+0007]c[U+2066]\td[U+000D]e\n"
    assert number_text.visible("é☃ \u05d0\u00a0µ") == "é☃ \u05d0\u00a0µ"
