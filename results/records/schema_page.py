"""The tables of columns on the page about results, which are made of the schema.

``python -m results.records.schema_page --write docs/results.md`` writes them anew after the schema has changed; without
``--write`` it only tells whether the page and the schema agree.
"""

import argparse
import sys
from pathlib import Path

import pyarrow as pa

from ground.impairments import IMPAIRMENTS
from results.records.run_store import SUMMARY_FILE
from results.records.schema import CALIBRATION, SUMMARY
from results.records.trial_tables import TRIAL_TABLES

BEGIN = "<!-- tables of results/records/schema.py: python -m results.records.schema_page --write docs/results.md -->\n"
END = "<!-- end of tables -->\n"

_TABLES = {
    **{f"{table.file}: {table.title}": table.columns for table in TRIAL_TABLES.values()},
    "calibration/point-NNN.parquet: the links, measured before the first trial": CALIBRATION,
    f"{SUMMARY_FILE}: one row a trial": SUMMARY,
}
_UNITS = {
    "_ns": "ns",
    "_ms": "ms",
    "_bps": "bit/s",
    "_bytes": "bytes",
    "_segments": "segments",
    "tokens_per_s": "tokens/s",
    "_s": "s",
    "_hz": "Hz",
    "power_w": "W",
    "_c": "degrees Celsius",
    "packets": "packets",
    "drops": "packets",
    **{f"_{each.field}": "fraction" for each in IMPAIRMENTS if not each.is_duration},
    "_fraction": "fraction",
    "utilization": "fraction",
    "_with_prefill": "fraction",
}


def unit_of(column: str) -> str:
    """Return the unit that a column's name ends in, "" for one that has none."""
    return next((unit for ending, unit in _UNITS.items() if column.endswith(ending)), "")


def schema_tables() -> str:
    """Return every table with its columns, as Markdown."""
    return "\n".join(f"### {_heading(name)}\n\n{_columns(schema)}" for name, schema in _TABLES.items())


def _heading(name: str) -> str:
    file, _, what = name.partition(": ")
    return f"`{file}`: {what}"


def _columns(schema: pa.Schema) -> str:
    rows = []
    for column in schema:
        meaning = (column.metadata or {})[b"meaning"].decode()
        rows.append(f"| `{column.name}` | {column.type} | {unit_of(column.name)} | {meaning} |")
    return "\n".join(["| column | type | unit | meaning |", "| --- | --- | --- | --- |", *rows, ""])


def with_tables(page: str) -> str:
    """Return the page with the schema's tables between its two marks. Raises ValueError where it lacks one."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page lacks {BEGIN!r} or {END!r}")
    return f"{before}{BEGIN}\n{schema_tables()}\n{END}{after}"


def main(arguments: list[str] | None = None) -> int:
    """Write or check a page; return the exit status, 1 for a page that does not agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--write", action="store_true", help="bring the page up to date")
    asked = parser.parse_args(arguments)
    text = asked.page.read_text(encoding="utf-8")
    current = with_tables(text)
    if asked.write:
        asked.page.write_text(current, encoding="utf-8")
    elif current != text:
        print(
            f"{asked.page}: differs from results/records/schema.py, bring it up to date with --write", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
