"""The tables of ``docs/reliability.md``, from the ledger."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tests.reliability.kills.ledger import Entry

BEGIN = "<!-- from tests/reliability/kills/ledger.csv: make reliability KILLS=0 -->"
END = "<!-- end of the ledger's tables -->"
_HEADINGS = ("attempts", "in time", "left something", "loads", "goes on", "equal", "all as documented")


def tables(entries: Sequence[Entry]) -> str:
    """Return both tables: by command, and by disturbance."""
    by_scene = _table("command", entries, lambda entry: entry.scene)
    by_kind = _table("disturbance", entries, lambda entry: f"{entry.kind}{' of the ' * bool(entry.whom)}{entry.whom}")
    return f"{by_scene}\n\n{by_kind}"


def _table(heading: str, entries: Sequence[Entry], name: Callable[[Entry], str]) -> str:
    names = sorted({name(entry) for entry in entries})
    rows = [_row(each, [entry for entry in entries if name(entry) == each]) for each in names]
    lines = [(heading, *_HEADINGS), ("---",) * (1 + len(_HEADINGS)), *rows, _row("all", entries)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _row(name: str, entries: Sequence[Entry]) -> tuple[str, ...]:
    in_time = sum(entry.in_time == "yes" for entry in entries)
    left = sum(entry.left != "0" for entry in entries)
    answers = [[getattr(entry, column) for entry in entries] for column in ("loads", "again", "equal")]
    fine = sum(not entry.wrong for entry in entries)
    return (name, str(len(entries)), str(in_time), str(left), *map(_part, answers), f"{fine} of {len(entries)}")


def _part(answers: Sequence[str]) -> str:
    asked = [answer for answer in answers if answer]
    return f"{asked.count('yes')} of {len(asked)}" if asked else "-"


def write_tables(page: Path, entries: Sequence[Entry]) -> None:
    """Replace what stands between the marks of the page."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n\n{tables(entries)}\n\n{END}{after}", encoding="utf-8")
