"""Check that the page of known misses has the kinds as they are.

``python -m wanbed.runner.validation.known_misses docs/known-misses.md --write`` writes them after one has changed.
"""

import argparse
import sys
from pathlib import Path

from wanbed.runner.validation.known_misses.page import with_kinds


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


if __name__ == "__main__":
    sys.exit(main())
