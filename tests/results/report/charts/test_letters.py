"""Text that is broken into lines of a width, and cut only if that is not enough."""

from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.report.charts.letters import text_width_pt, wrapped
from wanbed.results.text import shortened

TEXTS = st.text("abiW- ", max_size=80)

WIDTHS = st.floats(15, 300)


@given(TEXTS, WIDTHS, st.integers(1, 3), st.booleans())
def test_no_line_is_wider_than_the_room_and_there_are_no_more_than_asked_for(
    text: str, width_pt: float, lines: int, bold: bool
) -> None:
    found = wrapped(text, width_pt, lines, bold=bold).split("\n")
    assert len(found) <= lines
    assert all(text_width_pt(line, bold=bold) <= width_pt * (1 + 1e-9) for line in found)
    assert all(line == line.strip() for line in found)


@given(TEXTS, WIDTHS)
def test_of_a_text_or_what_is_left_of_it_no_letter_is_lost(text: str, width_pt: float) -> None:
    found = "".join(wrapped(text, width_pt).split())
    assert found in {"".join(shortened(text, length).split()) for length in range(len(text) + 1)} | {""}


@given(TEXTS, st.integers(1, 3))
def test_no_letter_is_cut_that_has_room(text: str, lines: int) -> None:
    text = " ".join(text.split())
    assert wrapped(text, text_width_pt(text), lines) == text


def test_lines_are_broken_at_spaces_and_after_hyphens_and_long_words_anywhere() -> None:
    width_pt = text_width_pt("one two-")
    assert wrapped("one two-three four", width_pt) == "one two-\nthree\nfour"
    assert wrapped("onetwothreefour", text_width_pt("onetwo")) == "onetwo\nthreefo\nur"


def test_a_text_that_does_not_fit_loses_its_middle() -> None:
    assert wrapped("beginning of a name that is long, and end", text_width_pt("beginning"), 2) == "beginning\no…d end"
