"""Print lines that are no results."""

import sys

from wanbed.ground.shown_text import one_line


def log(line: str) -> None:
    """Print a line that is no result to standard error, whatever characters are in the names in it."""
    print(f"wanbed: {one_line(line)}", file=sys.stderr, flush=True)
