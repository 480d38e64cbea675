"""Generate the tables of columns on the results page from the schema.

``python -m wanbed.results.records.schema_page --write docs/results.md`` updates them after the schema has changed.
Without ``--write`` it only checks that the page agrees with the schema.
"""

import argparse
import sys
from pathlib import Path

import pyarrow as pa

from wanbed.ground.files import with_marked_text
from wanbed.ground.impairments import IMPAIRMENTS
from wanbed.results.records.run_store import SUMMARY_FILE
from wanbed.results.records.schema import CALIBRATION, SUMMARY
from wanbed.results.records.trial_tables import TRIAL_TABLES

BEGIN = (
    "<!-- tables of results/records/schema.py: "
    "python -m wanbed.results.records.schema_page --write docs/results.md -->\n"
)
END = "<!-- end of tables -->\n"

_TABLES = {
    **{f"{table.file}: {table.title}": table.fullest or table.columns for table in TRIAL_TABLES.values()},
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
    "usd_per_iteration": "USD",
    "usd_per_h": "USD/h",
    "usd_per_million_tokens": "USD",
    "packets": "packets",
    "drops": "packets",
    **{f"_{each.field}": "fraction" for each in IMPAIRMENTS if not each.is_duration},
    "_fraction": "fraction",
    "utilization": "fraction",
    "_with_prefill": "fraction",
}


def unit_of(column: str) -> str:
    """Return the unit that the end of a column's name stands for, "" if none."""
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
    """Return the page with the schema's tables between its two marks. Raise ValueError if a mark is missing."""
    return with_marked_text(page, BEGIN, END, schema_tables())


def main(arguments: list[str] | None = None) -> int:
    """Write or check a page; return the exit status: 1 if the page does not agree with the schema, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--write", action="store_true", help="bring the page up to date")
    options = parser.parse_args(arguments)
    text = options.page.read_text(encoding="utf-8")
    current = with_tables(text)
    if options.write:
        options.page.write_text(current, encoding="utf-8")
    elif current != text:
        print(
            f"{options.page}: differs from results/records/schema.py, bring it up to date with --write", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
