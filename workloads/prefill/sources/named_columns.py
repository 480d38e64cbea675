"""Parse lines of a trace whose columns have other names than in the published formats: CSV with a header, or JSONL.

A parser returns what those of ``trace_line`` do, and raises ValueError, one line, for an unusable line.
"""

import csv
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from enum import StrEnum

from wanbed.workloads.prefill.sources.trace_line import (
    MAX_LINE_BYTES,
    ParsedLine,
    RequestTraceFormat,
    parse_json,
    shown,
    token_count,
    utc_ns,
)

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
        document = parse_json(line, parse_float=str)
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
                return utc_ns(text.encode())
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
        return token_count(name, int(text))


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
