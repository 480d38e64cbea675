"""Write text and table lines of GitHub-style markdown."""

from collections.abc import Sequence

from results.text.number_text import visible

_ESCAPES = {
    **{character: f"\\{character}" for character in "\\`*_{}[]~$#"},
    **{character: f"&#{ord(character)};" for character in "<>&|@"},
}


def markdown_text(text: str) -> str:
    """Return a text as it shows literally within a cell of a table."""
    return "".join(_ESCAPES.get(character, character) for character in " ".join(visible(text).split()))


def table_line(cells: Sequence[str]) -> str:
    """Return a table's line of cells that are markdown already."""
    return f"| {' | '.join(cells)} |"
