"""The formats of request traces: Azure's CSV, Mooncake's JSONL, and columns that the experiment names.

A parser takes one line and returns the arrival in nanoseconds (from an arbitrary origin), the prompt's tokens and the
output's tokens. It raises ValueError, one line, for an unusable line. Times are never converted to floating point.
"""

import csv
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Context, Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Any

MAX_LINE_BYTES = 2**20
MAX_TOKENS = 10**9
"""A request with more tokens is an error in the file."""

AZURE_HEADER = b"TIMESTAMP,ContextTokens,GeneratedTokens"

_UTC = re.compile(rb"(\d{4}-\d\d-\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:\+00:00|Z)?")
_COUNT = re.compile(rb"\d{1,10}")
_AZURE_COLUMNS = 3
_YEARS = range(1970, 2262)
_MAX_TIMESTAMP_MS = (2**63 - 1) // 10**6
_SHOWN_CHARACTERS = 40

ParsedLine = tuple[int, int, int]


@dataclass(frozen=True)
class RequestTraceFormat:
    """A format and its parser. ``ticked``: arrivals are rounded to the ticks of a coarse clock."""

    name: str
    parse: Callable[[bytes], ParsedLine]
    has_header: bool
    ticked: bool


def format_of(first_line: bytes) -> RequestTraceFormat | None:
    """Return the format of a file by its first line, None if it is unknown."""
    if first_line == AZURE_HEADER:
        return AZURE
    return MOONCAKE if first_line.startswith(b"{") else None


def parse_azure(line: bytes) -> ParsedLine:
    """Parse ``2023-11-16 18:17:03.9799600,4808,10``: time in UTC, prompt tokens, output tokens.

    The time has up to nine fractional digits. The zone may be written out, as ``+00:00`` or ``Z``.
    """
    columns = line.split(b",")
    if len(columns) != _AZURE_COLUMNS:
        raise ValueError(f"{len(columns)} columns, {_AZURE_COLUMNS} are wanted: {AZURE_HEADER.decode()}")
    counts = []
    for name, text in zip(("ContextTokens", "GeneratedTokens"), columns[1:], strict=True):
        if not _COUNT.fullmatch(text):
            raise ValueError(f"{name}: {shown(text.decode(errors='replace'))} is no count of tokens")
        counts.append(_token_count(name, int(text)))
    try:
        moment_ns = _utc_ns(columns[0])
    except ValueError as fault:
        raise ValueError(f"TIMESTAMP: {fault}") from None
    return moment_ns, counts[0], counts[1]


def _utc_ns(text: bytes) -> int:
    """Parse ``2023-11-16 18:17:03.9799600``, a moment in UTC, to nanoseconds since 1970. Raise ValueError, one line."""
    match = _UTC.fullmatch(text)
    if match is None:
        raise ValueError(f"{shown(text.decode(errors='replace'))} is not like 2023-11-16 18:17:03.9799600")
    day, hour, minute, second, fraction = match.groups()
    hours, minutes, seconds = int(hour), int(minute), int(second)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError(f"{text.decode()} is no time of a day")
    moment_ns = _midnight_ns(day) + ((hours * 60 + minutes) * 60 + seconds) * 10**9
    return moment_ns if fraction is None else moment_ns + int(fraction.ljust(9, b"0"))


def parse_mooncake(line: bytes) -> ParsedLine:
    """Parse ``{"timestamp": 27000, "input_length": 6955, "output_length": 52}``: ms, prompt tokens, output tokens.

    Other fields are ignored.
    """
    document = _parse_json(line)
    timestamp_ms = _whole_number(document, "timestamp")
    if not 0 <= timestamp_ms <= _MAX_TIMESTAMP_MS:
        raise ValueError(f"timestamp: {shown(timestamp_ms)} is not in 0 to {_MAX_TIMESTAMP_MS} ms")
    return (
        timestamp_ms * 10**6,
        _token_count("input_length", _whole_number(document, "input_length")),
        _token_count("output_length", _whole_number(document, "output_length")),
    )


def _parse_json(line: bytes, *, parse_float: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """Return the JSON object of a line. ``parse_float`` converts fractions, as in ``json.loads``."""
    try:
        document = json.loads(line, parse_float=parse_float)
    except json.JSONDecodeError as fault:
        raise ValueError(f"not JSON: {fault.msg} at column {fault.colno}") from None
    except UnicodeDecodeError:
        raise ValueError("not JSON: not UTF-8") from None
    except RecursionError:
        raise ValueError("not JSON: nested too deep") from None
    except ValueError:
        raise ValueError("a number in it has too many digits") from None
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    return document


AZURE = RequestTraceFormat("Azure CSV", parse_azure, has_header=True, ticked=False)
MOONCAKE = RequestTraceFormat("Mooncake JSONL", parse_mooncake, has_header=False, ticked=True)


@lru_cache(maxsize=64)
def _midnight_ns(day: bytes) -> int:
    """Return the start of a day, in nanoseconds since 1970."""
    text = day.decode()
    try:
        parsed = date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text} is no day of a calendar") from None
    if parsed.year not in _YEARS:
        raise ValueError(f"the year {parsed.year} is not in {_YEARS[0]} to {_YEARS[-1]}")
    return (parsed - date(1970, 1, 1)).days * 86_400 * 10**9


def _whole_number(document: dict[str, Any], field: str) -> int:
    if field not in document:
        raise ValueError(f"{field}: this field is required")
    value = document[field]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{field}: {shown(value)} is no whole number")
    return value


def _token_count(field: str, tokens: int) -> int:
    """Return ``tokens``. Raise ValueError if it is no number of tokens that a request may have."""
    if not 1 <= tokens <= MAX_TOKENS:
        raise ValueError(f"{field}: {shown(tokens)} is not in 1 to {MAX_TOKENS}")
    return tokens


def shown(value: object) -> str:
    """Return a value of the file for an error message: on one line, and shortened."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


_MAX_NS = 2**63 - 1
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_UNTRAPPED = Context(traps=[])
"""Arithmetic in which a number too large is infinite, and one too small is 0."""

# The module's own limit is for the whole process, and below the longest line that is read.
csv.field_size_limit(MAX_LINE_BYTES)


class ArrivalUnit(StrEnum):
    """The notation of a trace's arrivals: as numbers in a unit of time, or as dates and times in UTC."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"
    UTC = "utc"


_NS: Mapping[ArrivalUnit, int] = {
    ArrivalUnit.SECONDS: 10**9,
    ArrivalUnit.MILLISECONDS: 10**6,
    ArrivalUnit.MICROSECONDS: 10**3,
    ArrivalUnit.NANOSECONDS: 1,
}


@dataclass(frozen=True)
class TraceColumns:
    """The names of a trace's columns or, in JSONL, fields: arrival, prompt tokens and output tokens.

    ``unit`` is that of the arrivals, which count from any origin and are not negative.
    """

    arrival: str
    prompt: str
    output: str
    unit: ArrivalUnit

    def format_of(self, first_line: bytes) -> RequestTraceFormat:
        """Return the format of a file by its first line: JSONL if it begins with ``{``, else CSV with a header.

        Raise ValueError, one line, if the header lacks a column or has it twice.
        """
        if first_line.startswith(b"{"):
            return RequestTraceFormat("JSONL", self._parse_json, has_header=False, ticked=False)
        return RequestTraceFormat("CSV", self._csv_parser(_cells(first_line)), has_header=True, ticked=False)

    def _csv_parser(self, header: list[str]) -> Callable[[bytes], ParsedLine]:
        names = (self.arrival, self.prompt, self.output)
        for name in names:
            if header.count(name) != 1:
                found = "no column" if name not in header else "more than one column"
                raise ValueError(f"{found} {shown(name)}: the header has {', '.join(map(shown, header))}")
        places = [header.index(name) for name in names]

        def parse(line: bytes) -> ParsedLine:
            cells = _cells(line)
            if len(cells) != len(header):
                raise ValueError(f"{len(cells)} columns, where the header has {len(header)}")
            return self._parsed(*(cells[place] for place in places))

        return parse

    def _parse_json(self, line: bytes) -> ParsedLine:
        document = _parse_json(line, parse_float=str)
        values = []
        for name in (self.arrival, self.prompt, self.output):
            if name not in document:
                raise ValueError(f"{name}: this field is required")
            value = document[name]
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise ValueError(f"{name}: {shown(value)} is neither a number nor text")
            values.append(str(value))
        return self._parsed(*values)

    def _parsed(self, arrival: str, prompt: str, output: str) -> ParsedLine:
        return self._arrival_ns(arrival), self._tokens(self.prompt, prompt), self._tokens(self.output, output)

    def _arrival_ns(self, text: str) -> int:
        if self.unit is ArrivalUnit.UTC:
            try:
                return _utc_ns(text.encode())
            except ValueError as fault:
                raise ValueError(f"{self.arrival}: {fault}") from None
        if not _NUMBER.fullmatch(text):
            raise ValueError(f"{self.arrival}: {shown(text)} is no number of {self.unit}")
        moment_ns = _UNTRAPPED.multiply(_UNTRAPPED.create_decimal(text), Decimal(_NS[self.unit]))
        if not 0 <= moment_ns <= _MAX_NS:
            raise ValueError(f"{self.arrival}: {shown(text)} {self.unit} is not in 0 to {_MAX_NS} ns")
        return round(moment_ns)

    def _tokens(self, name: str, text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) <= 10):
            raise ValueError(f"{name}: {shown(text)} is no count of tokens")
        return _token_count(name, int(text))


def _cells(line: bytes) -> list[str]:
    try:
        (cells,) = csv.reader([line.decode()], strict=True)
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except (csv.Error, ValueError) as fault:
        if str(fault) == "unexpected end of data":
            raise ValueError(
                "a quoted field does not end in this line: write each request on one line, without line breaks in it"
            ) from None
        raise ValueError(f"not CSV: {fault}") from None
    return [cell.strip() for cell in cells]
