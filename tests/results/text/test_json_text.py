import json

from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.text.json_text import json_text


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_the_document_reads_back_as_it_was(text: str) -> None:
    assert json.loads(json_text({text: [text]})) == {text: [text]}


def test_what_would_change_a_terminal_is_escaped_and_other_letters_are_not() -> None:
    assert json_text(["\x1b\u202e\x9b\u2028 é א"]) == '[\n  "\\u001b\\u202e\\u009b\\u2028 é א"\n]'
