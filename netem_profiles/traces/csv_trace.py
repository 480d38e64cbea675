"""Read and write conditions over time as CSV: a header with ``t_s`` and some fields of a link, and unit strings."""

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from io import StringIO
from typing import Any

from wanbed.ground.impairments import IMPAIRMENTS
from wanbed.ground.nearest_name import did_you_mean
from wanbed.ground.shown_text import shown
from wanbed.ground.strict_model import LocatedError
from wanbed.ground.units import (
    format_duration,
    format_fraction,
    format_rate,
    parse_duration_ns,
    parse_fraction,
    parse_rate_bps,
)
from wanbed.netem_profiles.traces.row_limit import check_rows
from wanbed.testbed.network.links.condition_trace import MAX_TRACE_NS, ConditionTrace, TraceRow
from wanbed.testbed.network.links.link_spec import FIGURES, check_delay

TIME = "t_s"
UP = "up"
MAX_ROWS_BYTES = 1000
"""The longest row."""

_SECONDS = re.compile(r"\d{1,20}(\.\d{1,20})?", re.ASCII)
_UP = {"true": True, "1": True, "false": False, "0": False}


def _delay_ns(text: str) -> int:
    return check_delay(parse_duration_ns(text))


def _is_up(text: str) -> bool:
    found = _UP.get(text.strip().lower())
    if found is None:
        raise ValueError(f"{shown(text)} is neither true nor false")
    return found


_DURATIONS = {"latency", *(each.name for each in IMPAIRMENTS if each.is_duration)}
_RATES = {"rate", "node_pair_rate"}


def _parser(column: str) -> Callable[[str], Any]:
    if column == UP:
        return _is_up
    if column in _DURATIONS:
        return _delay_ns
    return parse_rate_bps if column in _RATES else parse_fraction


def _written(column: str, value: Any) -> str:
    if column == UP:
        return "true" if value else "false"
    if column in _DURATIONS:
        return format_duration(value)
    return format_rate(value) if column in _RATES else format_fraction(value)


COLUMNS: Mapping[str, Callable[[str], Any]] = {name: _parser(name) for name in (*FIGURES, UP)}
"""The columns beside the time, each with what parses a cell. A field of a link is called as in an experiment file."""


@lru_cache(maxsize=32)
def csv_trace(text: str, file: str, source: str) -> ConditionTrace:
    """Return the trace in a CSV text; ``file`` starts messages, ``source`` is what reports call it.

    Lines that begin with ``#`` and empty ones are skipped. Raise LocatedError, one line with file and line, for what
    is no trace. Cached, because every sweep point has the same trace.
    """
    return trace_of_columns(text, file, source, COLUMNS)


def trace_of_columns(text: str, file: str, source: str, parsers: Mapping[str, Callable[[str], Any]]) -> ConditionTrace:
    """Return the trace in a CSV text that has columns of these names beside the time, each with what parses a cell.

    The arguments and errors are otherwise those of ``csv_trace``. Not cached.
    """
    lines = _lines(text)
    number, header = next(lines, (1, ""))
    columns = _header(header, f"{file}:{number}", parsers)
    check_rows(text, file)
    rows: list[TraceRow] = []
    known: dict[tuple[int, str], Any] = {}
    for number, line in lines:
        where = f"{file}:{number}"
        cells = _cells(line, where)
        if len(cells) != len(columns):
            raise LocatedError(
                f"{where}: {len(cells)} cells under a header of {len(columns)}: give one for each column, if empty"
            )
        at_ns = 0
        values: dict[str, Any] = {}
        for position, (column, cell) in enumerate(zip(columns, cells, strict=True)):
            if column == TIME:
                at_ns = _time_ns(cell, where)
            elif cell and not cell.isspace():
                if (position, cell) not in known:
                    known[position, cell] = _value(parsers[column], column, cell, where)
                values[column] = known[position, cell]
        if rows and at_ns <= rows[-1].at_ns:
            fault = "the same time as" if at_ns == rows[-1].at_ns else "before"
            raise LocatedError(
                f"{where}: {TIME}: {shown(cells[columns.index(TIME)])} is {fault} line {rows[-1].line}: times rise"
            )
        rows.append(TraceRow(at_ns, values, number))
    if not rows:
        raise LocatedError(f"{file}:{number}: no row below the header: give at least one")
    return ConditionTrace(file, source, tuple(rows))


def csv_text(trace: ConditionTrace) -> str:
    """Return a trace as CSV, which ``csv_trace`` reads to the same rows."""
    columns = [name for name in COLUMNS if name in trace.fields]
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([TIME, *columns])
    for row in trace.rows:
        cells = (_written(name, row.values[name]) if name in row.values else "" for name in columns)
        writer.writerow([f"{(Decimal(row.at_ns) / 10**9).normalize():f}", *cells])
    return out.getvalue()


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(StringIO(text), 1):
        if line.strip() and not line.startswith("#"):
            yield number, line.rstrip("\r\n")


def _cells(line: str, where: str) -> list[str]:
    if len(line) > MAX_ROWS_BYTES:
        raise LocatedError(f"{where}: longer than {MAX_ROWS_BYTES} characters, no row of a trace")
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error as fault:
        raise LocatedError(f"{where}: not CSV: {fault}") from None


def _header(line: str, where: str, parsers: Mapping[str, Callable[[str], Any]]) -> list[str]:
    columns = [cell.strip() for cell in _cells(line, where)]
    known = f"known: {', '.join((TIME, *parsers))}"
    if not line:
        raise LocatedError(f"{where}: empty: give a header, like t_s,rate, and a row for each change")
    if TIME not in columns:
        raise LocatedError(f"{where}: no column {TIME} in the header, {known}")
    for position, column in enumerate(columns):
        if column != TIME and column not in parsers:
            raise LocatedError(f"{where}: no column {shown(column)}, {did_you_mean(column, list(parsers), known)}")
        if column in columns[:position]:
            raise LocatedError(f"{where}: the column {column} is there twice, leave one of them out")
    if len(columns) == 1:
        raise LocatedError(f"{where}: no column but {TIME}, {known}")
    return columns


def _time_ns(cell: str, where: str) -> int:
    text = cell.strip()
    if not _SECONDS.fullmatch(text):
        raise LocatedError(
            f"{where}: {TIME}: {shown(cell)} is no time: give seconds since training began, a number like 12.5"
        )
    at_ns = round(Decimal(text) * 10**9)
    if at_ns > MAX_TRACE_NS:
        raise LocatedError(f"{where}: {TIME}: {shown(cell)} is more than 31 days: give seconds since training began")
    return at_ns


def _value(parse: Callable[[str], Any], column: str, cell: str, where: str) -> Any:
    try:
        return parse(cell)
    except ValueError as fault:
        raise LocatedError(f"{where}: {column}: {fault}") from None
