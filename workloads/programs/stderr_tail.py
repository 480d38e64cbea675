"""Choose the line of what a program printed that says best why it ended."""

import os
import re
from pathlib import Path

from wanbed.ground.shown_text import one_line

TAIL_BYTES = 32 * 2**10
"""So much of the end of what a program printed is looked at."""
_MAX_CHARACTERS = 400
_COLOUR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_TRACEBACK = re.compile(r"^(?P<prefix>(?:\[[^\]\n]*\]:? ?)?)Traceback \(most recent call last\):$")
"""The first line of a Python traceback. torch puts the rank in front of each line of one, like ``[rank0]: ``."""


def telling_line(printed: bytes) -> str:
    """Return the exception of the last Python traceback in what was printed, or else the last line with a word in it.

    Other lines often follow an exception: warnings of what was not closed. Return "" if there is no such line.
    """
    text = _COLOUR.sub("", printed.decode("utf-8", errors="replace"))
    # A progress bar returns to the start of its line: what was printed last is what is seen.
    lines = [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in text.split("\n")]
    told = _exception(lines) or next((line for line in reversed(lines) if any(map(str.isalnum, line))), "")
    line = one_line(told.strip())
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}..."


def telling_line_of(path: Path) -> str:
    """Return the telling line of the end of a file, "" if there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            return telling_line(file.read())
    except FileNotFoundError:
        return ""


def _exception(lines: list[str]) -> str | None:
    """Return the line that follows the indented ones of the last traceback, None without one."""
    for number in range(len(lines) - 1, -1, -1):
        if (found := _TRACEBACK.match(lines[number])) is None:
            continue
        prefix = found["prefix"]
        following = (line.removeprefix(prefix) for line in lines[number + 1 :] if line.startswith(prefix))
        return next((line for line in following if line and not line.startswith(" ")), None)
    return None
