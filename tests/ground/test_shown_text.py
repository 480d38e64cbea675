from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.shown_text import one_line


@given(st.text(max_size=30))
def test_one_line_is_one_printable_line(text: str) -> None:
    assert one_line(text).isprintable()
    if text.isprintable():
        assert one_line(text) == text


def test_what_cannot_be_printed_is_escaped_and_the_rest_stays() -> None:
    assert one_line("zürich\n über\x07 'all'") == "zürich über\\x07 'all'"
