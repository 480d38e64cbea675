from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.shown_text import one_line


@given(st.text(max_size=30))
def test_one_line_is_one_printable_line(text: str) -> None:
    assert one_line(text).isprintable()
    if text.isprintable():
        assert one_line(text) == text
