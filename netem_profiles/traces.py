"""Load the traces that a topology names: conditions of a link over time, or what others send over it.

- CSV has a header with ``t_s`` and some fields of a link, and unit strings; of what others send, ``t_s`` and ``rate``,
  which may be zero.
- Mahimahi has a line for each 1500 bytes that a link can carry, with the time in whole milliseconds, as ``mm-link``
  reads it (Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", USENIX ATC 2015). There a packet waits
  for its line; here the link has a rate, the mean of a window. So what is shorter than a window is lost, and the format
  suits links of up to some 100 Mbit/s.

Files are read within bounds. A fault is one line with the file and, where there is one, the line.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any

from wanbed.ground.errors import LocatedError, did_you_mean, shown
from wanbed.ground.files import read_bounded
from wanbed.ground.impairments import IMPAIRMENTS
from wanbed.ground.units import (
    format_duration,
    format_fraction,
    format_rate,
    parse_duration_ns,
    parse_fraction,
    parse_rate_bps,
)
from wanbed.testbed.network.links.condition_trace import MAX_TRACE_NS, ConditionTrace, TraceRow
from wanbed.testbed.network.links.link_spec import FIGURES, TraceSpec, check_delay
from wanbed.testbed.network.links.wan_link import MAX_CHANGES
from wanbed.testbed.network.topology_spec import TopologySpec


def _check_rows(text: str, file: str, most: int = MAX_CHANGES) -> None:
    """Raise LocatedError, with the first line beyond, for a text of more lines than ``most`` and a header."""
    lines = text.count("\n") + (not text.endswith("\n"))
    if lines > most + 1:
        raise LocatedError(
            f"{file}:{most + 2}: one of {lines} lines, where a trace has {most} at most: give fewer, further apart"
        )


MAX_TRACE_BYTES = 4 * 2**20
"""The longest trace, 4 MiB: it is kept, as it is, in the manifest of every run."""


def read_trace_text(path: Path) -> str:
    """Return the text of a file. Raise LocatedError for one that cannot be read, is too long, or is no text."""
    file = str(path)
    try:
        content = read_bounded(path, MAX_TRACE_BYTES)
    except OSError as fault:
        raise LocatedError(f"{file}: cannot be read ({fault.strerror}): give the path of a readable trace") from None
    return _checked_text(content, file)


def _checked_text(content: bytes, file: str) -> str:
    """Return the text of a trace; ``file`` starts messages. Raise LocatedError if it is too long or no text."""
    if len(content) > MAX_TRACE_BYTES:
        line = content.count(b"\n", 0, MAX_TRACE_BYTES) + 1
        raise LocatedError(
            f"{file}:{line}: more than {MAX_TRACE_BYTES >> 20} MiB up to here, too long for a trace: give fewer rows"
        )
    for fault in (_first(content, b"\0"), _not_utf8(content)):
        if fault is not None:
            line = content.count(b"\n", 0, fault) + 1
            raise LocatedError(f"{file}:{line}: not UTF-8 text: give a trace, like one with the header t_s,rate")
    return content.decode("utf-8-sig")


def _first(content: bytes, byte: bytes) -> int | None:
    position = content.find(byte)
    return None if position < 0 else position


def _not_utf8(content: bytes) -> int | None:
    try:
        content.decode()
    except UnicodeDecodeError as fault:
        return fault.start
    return None


TIME = "t_s"
UP = "up"
_MAX_ROWS_BYTES = 1000
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
    return _trace_of_columns(text, file, source, COLUMNS)


def _trace_of_columns(text: str, file: str, source: str, parsers: Mapping[str, Callable[[str], Any]]) -> ConditionTrace:
    """Return the trace in a CSV text that has columns of these names beside the time, each with what parses a cell.

    The arguments and errors are otherwise those of ``csv_trace``. Not cached.
    """
    lines = _lines(text)
    number, header = next(lines, (1, ""))
    columns = _header(header, f"{file}:{number}", parsers)
    _check_rows(text, file)
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
    if len(line) > _MAX_ROWS_BYTES:
        raise LocatedError(f"{where}: longer than {_MAX_ROWS_BYTES} characters, no row of a trace")
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


PACKET_BITS = 1500 * 8
MAX_LINES = 1_000_000

_MILLISECONDS = re.compile(r"\d{1,15}", re.ASCII)
_MS = 10**6


@lru_cache(maxsize=32)
def mahimahi_trace(text: str, file: str, source: str, window_ns: int) -> ConditionTrace:
    """Return the rates of a Mahimahi trace, each the mean of a window; ``file`` starts messages.

    A window without a line is one with those after it until there is one, so no rate is 0. The trace ends at its last
    time, where it begins anew if it does, as with ``mm-link``; a last window that is shorter is one with the window
    before. Raise LocatedError, one line with file and line, for what is no such trace.
    """
    _check_rows(text, file, MAX_LINES)
    windows: dict[int, _Window] = {}
    earlier_ms, number = 0, 1
    for number, line in enumerate(StringIO(text), 1):
        if not (cell := line.strip()):
            continue
        if not _MILLISECONDS.fullmatch(cell):
            raise LocatedError(
                f"{file}:{number}: {shown(cell)} is no time: give whole milliseconds, one line for each 1500 bytes"
            )
        at_ms = int(cell)
        if at_ms < earlier_ms:
            raise LocatedError(f"{file}:{number}: {at_ms} is before {earlier_ms}, the line before: times never fall")
        if at_ms * _MS > MAX_TRACE_NS:
            raise LocatedError(f"{file}:{number}: {at_ms} ms is more than 31 days: give times since the trace began")
        earlier_ms = at_ms
        # A time is the end of its millisecond, so the last line, too, lies within the trace.
        windows.setdefault(max(at_ms * _MS - 1, 0) // window_ns, _Window(number)).packets += 1
    end_ns = earlier_ms * _MS
    if end_ns == 0:
        raise LocatedError(f"{file}:{number}: the trace ends at 0 ms: give lines with later times")
    return ConditionTrace(file, source, _rows(windows, end_ns, window_ns), end_ns)


@dataclass
class _Window:
    """The packets of one window, and the line of the first of them."""

    line: int
    packets: int = 0


def _rows(windows: Mapping[int, _Window], end_ns: int, window_ns: int) -> tuple[TraceRow, ...]:
    """Return a row for each window; one with nothing in it belongs to the next, a short last one to the one before."""
    spans: list[tuple[int, int, _Window]] = []
    begin_ns = 0
    for position, window in windows.items():
        window_end_ns = min((position + 1) * window_ns, end_ns)
        if spans and window_end_ns - begin_ns < window_ns:
            begin_ns, _, before = spans.pop()
            spans.append((begin_ns, window_end_ns, _Window(before.line, before.packets + window.packets)))
        else:
            spans.append((begin_ns, window_end_ns, window))
        begin_ns = window_end_ns
    return tuple(
        TraceRow(start_ns, {"rate": round(window.packets * PACKET_BITS * 10**9 / (stop_ns - start_ns))}, window.line)
        for start_ns, stop_ns, window in spans
    )


_NOTHING = frozenset({"0bit", "0kbit", "0Mbit", "0Gbit"})
"""The notations of a rate of zero. ``wanbed learn-link`` writes the first."""


def _offered_bps(cell: str) -> int:
    if cell.strip() in _NOTHING:
        return 0
    rate_bps = parse_rate_bps(cell)
    if rate_bps is None:
        raise ValueError("unlimited is no rate of a trace: give a rate like 200Mbit, or 0bit")
    return rate_bps


@lru_cache(maxsize=32)
def offered_trace(text: str, file: str, source: str) -> ConditionTrace:
    """Return the rates in a CSV text, in bit/s: each row has a ``rate``, but the last one may have none.

    ``file`` starts messages, ``source`` is what reports call it. Raise LocatedError, one line with file and line.
    """
    trace = _trace_of_columns(text, file, source, {"rate": _offered_bps})
    for row in trace.rows[:-1]:
        if not row.values:
            raise trace.fault(row, "rate: it is empty: give a rate, or 0bit for none")
    return trace


def named_traces(spec: TopologySpec) -> Iterator[TraceSpec]:
    """Yield every trace that a topology names."""
    for link in (spec.wan, *spec.links):
        if link is not None and link.trace is not None:
            yield link.trace


def trace_text(spec: TraceSpec, texts: Mapping[str, str], directory: Path) -> str:
    """Return the text of a trace: of ``texts``, by its path as written, or of its file below ``directory``.

    Raise LocatedError, one line with file and line.
    """
    text = texts.get(spec.file)
    if text is None:
        return read_trace_text(directory / spec.file)
    return _checked_text(text.encode(), _file(spec, texts, directory))


def load_trace(spec: TraceSpec, text: str, texts: Mapping[str, str], directory: Path) -> ConditionTrace:
    """Return the trace in its text, which ``trace_text`` gives. Raise LocatedError, one line with file and line."""
    file = _file(spec, texts, directory)
    if spec.mahimahi is not None:
        return mahimahi_trace(text, file, f"{spec.file} (Mahimahi, {format_duration(spec.window)})", spec.window)
    return csv_trace(text, file, spec.file)


def load_offered_trace(path: str, texts: Mapping[str, str], directory: Path) -> tuple[str, ConditionTrace]:
    """Return the text of what a flow offers over time, and its rates; ``path`` is as written.

    Raise LocatedError, one line with file and line.
    """
    spec = TraceSpec(csv=path)
    text = trace_text(spec, texts, directory)
    return text, offered_trace(text, _file(spec, texts, directory), path)


def _file(spec: TraceSpec, texts: Mapping[str, str], directory: Path) -> str:
    """Return how messages name a trace."""
    return f"traces.{spec.file}" if spec.file in texts else str(directory / spec.file)
