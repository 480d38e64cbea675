"""Show the changes of links in a trace: counters of what each was configured to, and an instant for each change."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from wanbed.results.perfetto.counters import LINK, Quantity, Steps, within
from wanbed.results.perfetto.trace_events import json_text
from wanbed.results.perfetto.trial_events import microseconds

_QUANTITIES = (
    ("rate_bps", Quantity("configured rate", "Mbit/s"), 1e-3),
    ("node_pair_rate_bps", Quantity("configured rate of a node pair", "Mbit/s"), 1e-3),
    ("latency_ns", Quantity("configured latency", "ms"), 1e-3),
    ("jitter_ns", Quantity("configured jitter", "ms"), 1e-3),
    ("loss", Quantity("configured loss", "%"), 1e5),
)
"""A column of the changes, its quantity, and the factor to thousandths of that. A link that is down loses all."""

Row = Mapping[str, Any]


def change_steps(changes: Sequence[Row], begin_ns: int, end_ns: int) -> Iterator[Steps]:
    """Yield the settings of each direction of a link, from rows of ``wanbed.results.records.schema.LINK_CHANGES``.

    A quantity that is unlimited at any time, and a jitter or loss that there never is, is left out.
    """
    for (source, destination), rows in _by_direction(changes).items():
        time_ns = np.array([_applied_ns(row) for row in rows], np.int64)
        for column, quantity, factor in _QUANTITIES:
            values = [1.0 if column == "loss" and not row["up"] else row[column] for row in rows]
            if any(value is None for value in values) or (column in {"loss", "jitter_ns"} and not any(values)):
                continue
            thousandths = np.array([round(value * factor) for value in values], np.int64)
            yield Steps(LINK, source, destination, quantity, *within(time_ns, thousandths, begin_ns, end_ns))


def change_events(changes: Sequence[Row], process: int, begin_ns: int, end_ns: int, shift_ns: int) -> list[str]:
    """Return an instant for each change in a time range, one line each; the first conditions are none."""
    events = []
    for (source, destination), rows in _by_direction(changes).items():
        for before, row in pairwise(rows):
            at_ns = _applied_ns(row)
            if begin_ns <= at_ns <= end_ns:
                name = f"{source} \u2192 {destination}: {_changed_text(before, row)}"
                late = None if row["applied_ns"] is None else (row["applied_ns"] - row["due_ns"]) / 1e3
                about = {"due_us": (row["due_ns"] + shift_ns) / 1e3, "applied_after_us": late}
                events.append(
                    f'{{"ph":"i","s":"p","pid":{process},"tid":0,"ts":{microseconds(at_ns + shift_ns)},'
                    f'"name":{json_text(name)},"cat":"link change","args":{json_text(about)}}},\n'
                )
    return events


def _applied_ns(row: Row) -> int:
    applied_ns = row["applied_ns"]
    return int(row["due_ns"] if applied_ns is None else applied_ns)


def _by_direction(changes: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(changes, key=lambda row: int(row["due_ns"])):
        found.setdefault((row["source"], row["destination"]), []).append(row)
    return found


def _changed_text(before: Row, row: Row) -> str:
    """Return what changed, as ``rate 50 Mbit/s, latency 20 ms``."""
    if row["up"] != before["up"]:
        return "up" if row["up"] else "down"
    texts = []
    for column, quantity, factor in _QUANTITIES:
        if row[column] != before[column]:
            value = "unlimited" if row[column] is None else f"{row[column] * factor / 1000:g} {quantity.unit}"
            texts.append(f"{quantity.name.removeprefix('configured ')} {value}")
    return ", ".join(texts)
