"""Limit the rows of a trace."""

from wanbed.ground.strict_model import LocatedError
from wanbed.testbed.network.links.wan_link import MAX_CHANGES


def check_rows(text: str, file: str, most: int = MAX_CHANGES) -> None:
    """Raise LocatedError, with the first line beyond, for a text of more lines than ``most`` and a header."""
    lines = text.count("\n") + (not text.endswith("\n"))
    if lines > most + 1:
        raise LocatedError(
            f"{file}:{most + 2}: one of {lines} lines, where a trace has {most} at most: give fewer, further apart"
        )
