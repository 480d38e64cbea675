"""The parts of the page that are written: each lies between marks that name it."""

from pathlib import Path

from wanbed.ground.files import with_marked_text, write_whole

BEGIN = "<!-- written by make which-training: {part} -->\n"
END = "<!-- end of {part} -->\n"


def write_part(page: Path, part: str, text: str) -> None:
    """Replace a part of the page. Raise ValueError if one of its marks is missing."""
    marks = BEGIN.format(part=part), END.format(part=part)
    write_whole(page, with_marked_text(page.read_text(encoding="utf-8"), *marks, text))
