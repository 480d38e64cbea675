"""Read a Mahimahi trace: a line for each 1500 bytes that a link can carry, with the time in whole milliseconds.

The format is that of ``mm-link`` (Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", USENIX ATC 2015).
There a packet waits for its line; here the link has a rate, the mean of a window. So what is shorter than a window is
lost, and the format suits links of up to some 100 Mbit/s.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO

from wanbed.ground.shown_text import shown
from wanbed.ground.strict_model import LocatedError
from wanbed.netem_profiles.traces.row_limit import check_rows
from wanbed.testbed.network.links.condition_trace import MAX_TRACE_NS, ConditionTrace, TraceRow

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
    check_rows(text, file, MAX_LINES)
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
