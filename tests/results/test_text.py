import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.records.span_log import COLLECTIVE_KINDS
from wanbed.results.text import (
    amount_text,
    count_text,
    isolated,
    json_text,
    kind_text,
    list_text,
    milliseconds_text,
    percent_text,
    rate_text,
    ratio_text,
    seconds_interval_text,
    seconds_text,
    shortened,
    size_text,
    three_digits,
    visible,
)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_the_document_reads_back_as_it_was(text: str) -> None:
    assert json.loads(json_text({text: [text]})) == {text: [text]}


def test_what_would_change_a_terminal_is_escaped_and_other_letters_are_not() -> None:
    assert json_text(["\x1b\u202e\x9b\u2028 é א"]) == '[\n  "\\u001b\\u202e\\u009b\\u2028 é א"\n]'


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
    assert three_digits(value) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(None, "n/a"), (0.5, "0.500"), (12, "12.0"), (8_503, "8.50 thousand"), (29.2e6, "29.2 million")],
)
def test_large_amounts_have_a_word_for_their_unit(amount: float | None, text: str) -> None:
    assert amount_text(amount).replace("\u00a0", " ") == text


@given(st.floats(min_value=1e-9, max_value=1e9))
def test_what_is_printed_is_within_half_a_percent(value: float) -> None:
    assert float(three_digits(value).replace(",", "")) == pytest.approx(value, rel=0.00501)


def test_units_follow_the_size() -> None:
    assert seconds_text(1.5) == "1.50\u00a0s"
    assert seconds_text(0.0456) == "45.6\u00a0ms"
    assert seconds_text(0.9999) == "1.00\u00a0s"
    assert seconds_text(0.3 - 0.1 - 0.2) == seconds_text(0.0)
    assert size_text(1_210_000_000) == "1.21\u00a0GB"
    assert rate_text(198e6) == "198\u00a0Mbit/s"
    assert rate_text(12) == "12.0\u00a0bit/s"
    assert milliseconds_text(0.02) == "0.0200\u00a0ms"


def test_fractions_and_ratios() -> None:
    assert percent_text(0.632) == "63.2\u00a0%"
    assert ratio_text(2.04) == "2.04x"


@pytest.mark.parametrize("unknown", [None, float("nan")])
def test_an_unknown_figure_is_n_a(unknown: float | None) -> None:
    texts = (seconds_text, size_text, percent_text, ratio_text)
    assert [text(unknown) for text in texts] == ["n/a"] * 4


def test_counts_and_lists_read_as_words() -> None:
    assert count_text(1, "trial") == "1 trial"
    assert count_text(3, "trial") == "3 trials"
    assert [list_text(list("abc"[:n])) for n in range(4)] == ["", "a", "a and b", "a, b and c"]


@pytest.mark.parametrize(
    ("interval_s", "text"),
    [((1.5, 2.0), "1.50 s to 2.00 s"), ((22.191, 22.212), "22.19 s to 22.21 s"), ((1.0, 1.0), "1.00 s to 1.00 s")],
)
def test_an_interval_has_the_digits_that_its_ends_need_to_differ(interval_s: tuple[float, float], text: str) -> None:
    assert seconds_interval_text(interval_s).replace("\u00a0", " ") == text


def test_a_long_name_keeps_its_ends() -> None:
    assert shortened("atlas", 5) == "atlas"
    assert shortened("varuna, large window", 12) == "varuna,…ndow"
    assert shortened("\u202ex", 20) == "[U+202E]x"


def test_invisible_characters_are_spelled_out() -> None:
    assert visible("a\u202eb\x07c\u2066\td\re\n") == "a[U+202E]b[U+0007]c[U+2066]\td[U+000D]e\n"
    assert visible("é☃ \u05d0\u00a0µ") == "é☃ \u05d0\u00a0µ"


@pytest.mark.parametrize("kind", COLLECTIVE_KINDS)
def test_no_name_of_a_collective_has_an_underscore(kind: str) -> None:
    assert "_" not in kind_text(kind)


def test_kinds_without_a_name_of_their_own_keep_theirs() -> None:
    assert [kind_text(kind) for kind in ("barrier", "all_to_all", "backward_input")] == [
        "barrier",
        "all-to-all",
        "backward input",
    ]


def test_only_right_to_left_phrases_are_isolated() -> None:
    assert (
        isolated("100 ms with \u0627لعربية هن\u0627, 50 ms") == "100 ms with \u2068\u0627لعربية هن\u0627\u2069, 50 ms"
    )


@pytest.mark.parametrize("text", ["", "gpipe, 100 ms", "é☃ 中文 русский"])
def test_text_from_left_to_right_stays_as_it_is(text: str) -> None:
    assert isolated(text) == text


def test_names_in_a_list_stay_in_its_order() -> None:
    assert isolated("عربي, نعم") == "\u2068عربي\u2069, \u2068نعم\u2069"


@given(st.text(alphabet="aé 1,<>&שלםعرب"))
def test_nothing_is_lost_and_every_isolate_is_closed_before_the_next(text: str) -> None:
    shown = isolated(text)
    assert shown.replace("\u2068", "").replace("\u2069", "") == text
    depth = 0
    for character in shown:
        depth += {"\u2068": 1, "\u2069": -1}.get(character, 0)
        assert 0 <= depth <= 1
    assert depth == 0
