"""The part of a page that a program writes."""

import pytest

from wanbed.ground.files.marked_text import with_marked_text

BEGIN, END = "<!-- begin -->\n", "<!-- end -->\n"


def test_what_lies_between_the_marks_is_replaced_and_the_rest_stays() -> None:
    page = f"before\n{BEGIN}old\n{END}after\n{END}"
    written = with_marked_text(page, BEGIN, END, "\nnew\n")
    assert written == f"before\n{BEGIN}\nnew\n\n{END}after\n{END}"
    assert with_marked_text(written, BEGIN, END, "new") == written


@pytest.mark.parametrize("page", ["", BEGIN, END, END + BEGIN])
def test_a_page_without_both_marks_in_their_order_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="the page lacks"):
        with_marked_text(page, BEGIN, END, "new")
