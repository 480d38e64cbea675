"""Read traces of requests from files in any of the known formats. It alone loads numpy."""

import re
from array import array
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from wanbed.ground.errors import LocatedError
from wanbed.ground.files import regular_file
from wanbed.workloads.bubbletea.request import Request
from wanbed.workloads.bubbletea.request_traces import RequestTrace
from wanbed.workloads.bubbletea.trace_formats import (
    AZURE_HEADER,
    MAX_LINE_BYTES,
    ParsedLine,
    RequestTraceFormat,
    TraceColumns,
    format_of,
)

LONGEST_TICK_NS = 3 * 10**9
"""The tick of the coarsest known clock: that of Mooncake's trace, 3 s."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_JSON_ARRAY = re.compile(rb"\s*\[\s*([\[{]|$)")

Nanoseconds = NDArray[np.int64]


def read_trace(
    path: Path, *, columns: TraceColumns | None = None, skip_bad_lines: bool = False, spread_ticks: bool = True
) -> RequestTrace:
    """Read a trace in either format, or with the ``columns`` that are named. Its name is the file's without suffix.

    Empty lines are skipped. An unusable line is an error, or is skipped and counted with ``skip_bad_lines``. Lines out
    of order (merged logs of several servers) are sorted by arrival; lines of one moment keep the file's order.

    Mooncake's clock ticks every 3 s, and all requests of a tick have the same time. With ``spread_ticks`` they are
    spread evenly from their tick on, over the shortest time between two ticks of the file (at most 3 s), because the
    clock and not the users cause a burst every 3 s. Arrivals are then more even than they were, and queues too short;
    without ``spread_ticks`` they stay a burst, and queues are too long. A file with a single tick is not spread.

    Only one line at a time is held as text, the rest as numbers. Raises InputError, one line: ``FILE:LINE: reason`` for
    an unusable line; also for a file that cannot be read, is in neither format, or has no request.
    """
    moments, prompts, outputs = array("q"), array("q"), array("q")
    skipped = 0
    try:
        with regular_file(path).open("rb") as file:
            trace_format, lines = _format_and_lines(path, file, columns)
            for number, line in lines:
                try:
                    moment_ns, prompt_tokens, output_tokens = _parsed(trace_format, line)
                except ValueError as fault:
                    if not skip_bad_lines:
                        raise LocatedError(f"{path}:{number}: {fault}") from None
                    skipped += 1
                    continue
                moments.append(moment_ns)
                prompts.append(prompt_tokens)
                outputs.append(output_tokens)
    except OSError as fault:
        raise LocatedError(f"{path}: {fault.strerror or fault}, give a readable trace") from None
    if not moments:
        passed_over = f", {skipped} unusable lines were skipped" if skipped else ""
        raise LocatedError(f"{path}: no request in it{passed_over}")
    return _trace(path.stem, (moments, prompts, outputs), skipped, spread=spread_ticks and trace_format.ticked)


def spread_evenly(moments_ns: Nanoseconds) -> Nanoseconds:
    """Return sorted moments with those of each tick spread evenly from the tick on, in their order.

    They are spread over the shortest time between two different ticks, at most ``LONGEST_TICK_NS``, and so never reach
    the next tick.
    """
    ticks, first, counts = np.unique(moments_ns, return_index=True, return_counts=True)
    if len(ticks) < 2:
        return moments_ns
    distance_ns = min(int(np.diff(ticks).min()), LONGEST_TICK_NS)
    place_in_tick = np.arange(len(moments_ns), dtype=np.int64) - np.repeat(first, counts)
    return np.asarray(moments_ns + place_in_tick * distance_ns // np.repeat(counts, counts), dtype=np.int64)


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the text of each non-empty line, without its end. A line too long is cut above the limit."""
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 2):
        number += 1
        if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(MAX_LINE_BYTES)
        line = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
        if line := line.rstrip(b"\r\n"):
            yield number, line


def _format_and_lines(
    path: Path, file: BinaryIO, columns: TraceColumns | None
) -> tuple[RequestTraceFormat, Iterator[tuple[int, bytes]]]:
    """Return the file's format, recognized by its first line, and the lines that hold requests."""
    lines = _lines(file)
    first = next(lines, None)
    if first is None:
        raise LocatedError(f"{path}: no request in it, it is empty")
    number, line = first
    if _JSON_ARRAY.match(line):
        raise LocatedError(f"{path}:{number}: a JSON array: write each request as one JSON object on a line of its own")
    try:
        trace_format = format_of(line) if columns is None else columns.format_of(line)
    except ValueError as fault:
        raise LocatedError(f"{path}:{number}: {fault}") from None
    if trace_format is None:
        raise LocatedError(
            f"{path}:{number}: neither the header {AZURE_HEADER.decode()} nor a JSON object with "
            "timestamp, input_length and output_length: name its columns in prefill.columns"
        )
    return trace_format, lines if trace_format.has_header else chain([first], lines)


def _parsed(trace_format: RequestTraceFormat, line: bytes) -> ParsedLine:
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"longer than {MAX_LINE_BYTES} bytes")
    return trace_format.parse(line)


def _trace(
    name: str, columns: tuple["array[int]", "array[int]", "array[int]"], skipped: int, *, spread: bool
) -> RequestTrace:
    moments, prompts, outputs = (np.frombuffer(column, dtype=np.int64) for column in columns)
    if np.any(moments[1:] < moments[:-1]):
        order = np.argsort(moments, kind="stable")
        moments, prompts, outputs = moments[order], prompts[order], outputs[order]
    arrivals = moments - moments[0]
    if spread:
        arrivals = spread_evenly(arrivals)
    # Convert the columns in small parts: as lists they would take more memory than the requests themselves.
    return RequestTrace(name, tuple(_requests(arrivals, prompts, outputs)), skipped)


def _requests(arrivals: Nanoseconds, prompts: Nanoseconds, outputs: Nanoseconds) -> Iterator[Request]:
    part = 4096
    for start in range(0, len(arrivals), part):
        rows = slice(start, start + part)
        columns = zip(arrivals[rows].tolist(), prompts[rows].tolist(), outputs[rows].tolist(), strict=True)
        for number, (arrival_ns, prompt_tokens, output_tokens) in enumerate(columns, start):
            yield Request(number, arrival_ns, prompt_tokens, output_tokens)
