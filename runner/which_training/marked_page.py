"""Replace what lies between two marks of a page, and leave the rest of it alone."""

from pathlib import Path

from ground.files.atomic_write import write_whole

BEGIN = "<!-- written by make which-training: {part} -->\n"
END = "<!-- end of {part} -->\n"


def write_part(page: Path, part: str, text: str) -> None:
    """Replace a part of the page. Raise ValueError if one of its marks is missing."""
    begin, end = BEGIN.format(part=part), END.format(part=part)
    before, begun, rest = page.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise ValueError(f"{page} lacks {begin!r} or {end!r}")
    write_whole(page, f"{before}{begin}\n{text.strip()}\n\n{end}{after}")
