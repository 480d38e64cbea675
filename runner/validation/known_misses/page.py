"""Write the kinds of known misses as a table with a reason for each, for the page on them."""

from wanbed.ground.files.marked_text import with_marked_text
from wanbed.results.text import count_text
from wanbed.runner.known_misses import MISS_CLASSES
from wanbed.runner.validation.page_text import table

BEGIN = (
    "<!-- kinds of runner/known_misses.py: "
    "python -m wanbed.runner.validation.known_misses docs/known-misses.md --write -->\n"
)
END = "<!-- end of kinds -->\n"


def kinds() -> str:
    """Return what each kind is, its range, and why, as Markdown."""
    misses = [each.miss for each in MISS_CLASSES]
    rows = [
        (f"`{miss.name}`", miss.what, miss.figure, miss.range_text, count_text(miss.cells, "trial")) for miss in misses
    ]
    reasons = "".join(f"- `{each.miss.name}`: {each.why}\n" for each in MISS_CLASSES)
    return f"{table(('kind', 'a trial in which', 'figure', 'simulated / virtual - 1', 'over'), rows)}\n{reasons}"


def with_kinds(page: str) -> str:
    """Return the page with the kinds as they are. Raise ValueError if it has no place for them."""
    return with_marked_text(page, BEGIN, END, kinds())
