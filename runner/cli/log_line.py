"""Print lines that are no results."""

import sys


def log(line: str) -> None:
    """Print a line that is no result to standard error."""
    print(f"wanbed: {line}", file=sys.stderr, flush=True)
