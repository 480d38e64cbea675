"""Read published traces: Azure's CSV and Mooncake's JSONL, told apart by the beginning of the file."""

from array import array
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ground.strict_model import InputError
from workloads.prefill.request import Request
from workloads.prefill.sources.trace import Trace
from workloads.prefill.sources.trace_line import AZURE_HEADER, ParsedLine, TraceFormat, format_of

MAX_LINE_BYTES = 2**20
LONGEST_TICK_NS = 3 * 10**9
"""The coarsest clock that is known: Mooncake's trace has ticks of 3 s."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Nanoseconds = NDArray[np.int64]


def read_trace(path: Path, *, skip_bad_lines: bool = False, spread_ticks: bool = True) -> Trace:
    """Read a trace in either format; its name is the file's, without the suffix.

    Empty lines are skipped. A line that is unusable is refused, or counted with ``skip_bad_lines``. Lines out of order,
    as the logs of several servers yield when put together, are sorted by their arrival, those of one moment in the
    file's order.

    Mooncake's clock ticks every 3 s, and all requests of a tick bear its time. They are spread evenly from their tick
    on, over the shortest time between two ticks of the file (at most 3 s), because the clock and not the users make a
    burst every 3 s. That makes arrivals more even than they were, so queues come out short; with ``spread_ticks`` off
    they stay a burst, and queues come out long. A file of one tick alone shows no distance, and stays as it is.

    One line at a time is held as text, the rest as numbers. Raises InputError, one line: ``FILE:LINE: reason`` for an
    unusable line, and likewise for a file that cannot be read, is in neither format, or has no request.
    """
    moments, prompts, outputs = array("q"), array("q"), array("q")
    skipped = 0
    try:
        with path.open("rb") as file:
            trace_format, lines = _format_and_lines(path, file)
            for number, line in lines:
                try:
                    moment_ns, prompt_tokens, output_tokens = _parsed(trace_format, line)
                except ValueError as fault:
                    if not skip_bad_lines:
                        raise InputError(f"{path}:{number}: {fault}") from None
                    skipped += 1
                    continue
                moments.append(moment_ns)
                prompts.append(prompt_tokens)
                outputs.append(output_tokens)
    except OSError as fault:
        raise InputError(f"{path}: {fault.strerror or fault}, give a readable trace") from None
    if not moments:
        passed_over = f", {skipped} unusable lines were skipped" if skipped else ""
        raise InputError(f"{path}: no request in it{passed_over}")
    return _trace(path.stem, (moments, prompts, outputs), skipped, spread=spread_ticks and trace_format.ticked)


def spread_evenly(moments_ns: Nanoseconds) -> Nanoseconds:
    """Return moments in order, those of each tick spread evenly from the tick on, in their order.

    They are spread over the shortest time between two ticks that differ, at most ``LONGEST_TICK_NS``, and thus never
    reach the tick after.
    """
    ticks, first, counts = np.unique(moments_ns, return_index=True, return_counts=True)
    if len(ticks) < 2:
        return moments_ns
    distance_ns = min(int(np.diff(ticks).min()), LONGEST_TICK_NS)
    place_in_tick = np.arange(len(moments_ns), dtype=np.int64) - np.repeat(first, counts)
    return np.asarray(moments_ns + place_in_tick * distance_ns // np.repeat(counts, counts), dtype=np.int64)


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield lines that are not empty, without their end, with their number; of one too long, a byte above the limit."""
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


def _format_and_lines(path: Path, file: BinaryIO) -> tuple[TraceFormat, Iterator[tuple[int, bytes]]]:
    """Return the format that the file's first line shows, and the lines that hold requests."""
    lines = _lines(file)
    first = next(lines, None)
    if first is None:
        raise InputError(f"{path}: no request in it, it is empty")
    number, line = first
    trace_format = format_of(line)
    if trace_format is None:
        raise InputError(
            f"{path}:{number}: neither the header {AZURE_HEADER.decode()} nor a JSON object with "
            "timestamp, input_length and output_length"
        )
    return trace_format, lines if trace_format.has_header else chain([first], lines)


def _parsed(trace_format: TraceFormat, line: bytes) -> ParsedLine:
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"longer than {MAX_LINE_BYTES} bytes")
    return trace_format.parse(line)


def _trace(name: str, columns: tuple["array[int]", "array[int]", "array[int]"], skipped: int, *, spread: bool) -> Trace:
    moments, prompts, outputs = (np.frombuffer(column, dtype=np.int64) for column in columns)
    if np.any(moments[1:] < moments[:-1]):
        order = np.argsort(moments, kind="stable")
        moments, prompts, outputs = moments[order], prompts[order], outputs[order]
    arrivals = moments - moments[0]
    if spread:
        arrivals = spread_evenly(arrivals)
    # The columns pass in small parts: as lists of numbers they would take more than the requests themselves.
    return Trace(name, tuple(_requests(arrivals, prompts, outputs)), skipped)


def _requests(arrivals: Nanoseconds, prompts: Nanoseconds, outputs: Nanoseconds) -> Iterator[Request]:
    part = 4096
    for start in range(0, len(arrivals), part):
        rows = slice(start, start + part)
        columns = zip(arrivals[rows].tolist(), prompts[rows].tolist(), outputs[rows].tolist(), strict=True)
        for number, (arrival_ns, prompt_tokens, output_tokens) in enumerate(columns, start):
            yield Request(number, arrival_ns, prompt_tokens, output_tokens)
