"""Write text and table rows in GitHub-flavoured Markdown."""

from collections.abc import Sequence

from wanbed.results.text.number_text import visible

_ESCAPES = {
    **{character: f"\\{character}" for character in "\\`*_{}[]~$#"},
    **{character: f"&#{ord(character)};" for character in "<>&|@"},
}


def markdown_text(text: str) -> str:
    """Escape a text so that a table cell shows it literally, on one line."""
    return "".join(_ESCAPES.get(character, character) for character in " ".join(visible(text).split()))


def table_line(cells: Sequence[str]) -> str:
    """Return a table row; the cells must be Markdown already."""
    return f"| {' | '.join(cells)} |"
