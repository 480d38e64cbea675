"""Choose the line of what a program printed that says best why it ended."""

import re

from ground.shown_text import one_line

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


def _exception(lines: list[str]) -> str | None:
    """Return the line that follows the indented ones of the last traceback, None without one."""
    for number in range(len(lines) - 1, -1, -1):
        if (found := _TRACEBACK.match(lines[number])) is None:
            continue
        prefix = found["prefix"]
        following = (line.removeprefix(prefix) for line in lines[number + 1 :] if line.startswith(prefix))
        return next((line for line in following if line and not line.startswith(" ")), None)
    return None
