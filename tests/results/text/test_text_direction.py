import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.text.text_direction import isolated


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
