"""Read what torch.profiler exports as a Chrome trace, with its times on CLOCK_MONOTONIC."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from .clock import ProfilerClock, Sighting

CLOCK_MARK = "wanbed clock"
"""The name of the marks whose times are known on both clocks."""

Times = tuple[int, int]


class Event(NamedTuple):
    """One entry of the trace: an operator, a call of the CUDA runtime, a kernel, or a mark of torch or the program.

    ``thread`` is that of an operator, the stream of a kernel. ``arguments`` are torch's own.
    """

    category: str
    name: str
    thread: object
    start_ns: int
    end_ns: int
    arguments: dict[str, Any]


class Trace(NamedTuple):
    """All entries, in the order of their starts, and the ranks of each process group that torch names."""

    events: tuple[Event, ...]
    groups: dict[str, tuple[int, ...]]
    clock_error_ns: int


def read_trace(path: str, first: Iterable[Times], last: Iterable[Times]) -> Trace:
    """Read the file. ``first`` and ``last``: what CLOCK_MONOTONIC was before and after each mark of the clock.

    Raise ValueError if the marks are not in the trace.
    """
    with open(path, encoding="utf-8") as file:
        contents = json.load(file)
    base_ns = int(contents.get("baseTimeNanoseconds", 0))
    entries = [each for each in contents["traceEvents"] if each.get("ph") == "X"]
    raw = sorted((_event(each, base_ns) for each in entries), key=lambda event: (event.start_ns, -event.end_ns))
    brackets = [*first, *last]
    marks = [each for each in raw if each.name == CLOCK_MARK and each.category == "user_annotation"]
    if len(marks) != len(brackets):
        raise ValueError(f"torch's profile has {len(marks)} marks of its clock, made were {len(brackets)}")
    sightings = [Sighting(*times, mark.start_ns) for times, mark in zip(brackets, marks)]
    begin = len(list(first))
    clock = ProfilerClock(sightings[:begin], sightings[begin:])
    return Trace(tuple(_converted(raw, clock.monotonic_ns)), _groups(contents), clock.error_ns)


def _event(entry: dict[str, Any], base_ns: int) -> Event:
    # Microseconds with the nanoseconds as decimals.
    start_ns = base_ns + round(float(entry["ts"]) * 1000)
    end_ns = start_ns + round(float(entry.get("dur", 0)) * 1000)
    return Event(entry.get("cat", ""), entry["name"], entry.get("tid"), start_ns, end_ns, entry.get("args", {}))


def _converted(events: Iterable[Event], monotonic_ns: Callable[[int], int]) -> Iterable[Event]:
    for each in events:
        if each.name != CLOCK_MARK:
            yield each._replace(start_ns=monotonic_ns(each.start_ns), end_ns=monotonic_ns(each.end_ns))


def _groups(contents: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    configured = contents.get("distributedInfo", {}).get("pg_config", [])
    # Older versions of torch write a table from names to groups.
    listed = (
        [{"pg_name": name, **each} for name, each in configured.items()] if isinstance(configured, dict) else configured
    )
    return {str(each["pg_name"]): tuple(each["ranks"]) for each in listed if isinstance(each.get("ranks"), list)}
