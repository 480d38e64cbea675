"""Write the kinds of known misses as a table with a reason for each into the page on them, or check that it has them.

``python -m wanbed.runner.validation.known_misses_page docs/known-misses.md --write`` writes them after one has changed.
"""

import argparse
import sys
from pathlib import Path

from wanbed.ground.files import with_marked_text
from wanbed.results.text import count_text
from wanbed.runner.resolve.known_misses import DISAGREEMENT, MISS_CLASSES
from wanbed.runner.validation.page import table

BEGIN = (
    "<!-- kinds of runner/known_misses.py: "
    "python -m wanbed.runner.validation.known_misses_page docs/known-misses.md --write -->\n"
)
END = "<!-- end of kinds -->\n"


def main(arguments: list[str] | None = None) -> int:
    """Write or check the page; return the exit status: 1 if it does not agree with the kinds, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--write", action="store_true", help="bring the page up to date")
    options = parser.parse_args(arguments)
    text = options.page.read_text(encoding="utf-8")
    wanted = with_kinds(text)
    if options.write:
        options.page.write_text(wanted, encoding="utf-8")
    elif wanted != text:
        print(f"{options.page}: does not have the kinds as they are, bring it up to date with --write", file=sys.stderr)
        return 1
    return 0


def kinds() -> str:
    """Return the kinds with their ranges and reasons, as Markdown."""
    every = (*MISS_CLASSES, DISAGREEMENT)
    misses = [each.miss for each in every]
    rows = [
        (f"`{miss.name}`", miss.what, miss.figure, miss.range_text, count_text(miss.cells, "trial")) for miss in misses
    ]
    reasons = "".join(f"- `{each.miss.name}`: {each.why}\n" for each in every)
    return f"{table(('kind', 'a trial in which', 'figure', 'simulated / virtual - 1', 'over'), rows)}\n{reasons}"


def with_kinds(page: str) -> str:
    """Return the page with the kinds as they are. Raise ValueError if it has no place for them."""
    return with_marked_text(page, BEGIN, END, kinds())


if __name__ == "__main__":
    sys.exit(main())
