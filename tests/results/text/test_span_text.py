import pytest

from wanbed.results.records.span_log import COLLECTIVE_KINDS
from wanbed.results.text.span_text import kind_text


@pytest.mark.parametrize("kind", COLLECTIVE_KINDS)
def test_no_name_of_a_collective_has_an_underscore(kind: str) -> None:
    assert "_" not in kind_text(kind)


def test_kinds_without_a_name_of_their_own_keep_theirs() -> None:
    assert [kind_text(kind) for kind in ("barrier", "all_to_all", "backward_input")] == [
        "barrier",
        "all-to-all",
        "backward input",
    ]
