"""Read what a trial's links were configured to over time, from the table of their changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from wanbed.results.reading.changing_links import directed_links

Numbers = npt.NDArray[np.float64]
Ends = tuple[str, str]


@dataclass(frozen=True)
class ConfiguredCourse:
    """The conditions of one direction of a link in a trial: each value holds from its time until the next.

    Times are seconds since training began. A rate is NaN where it is unlimited.
    """

    times_s: Numbers
    latency_ms: Numbers
    rate_bps: Numbers
    node_pair_rate_bps: Numbers
    up: npt.NDArray[np.bool_]
    latest_s: float
    """The longest time by which a change was applied after it was due."""

    def latency_ms_at(self, times_s: Numbers) -> Numbers:
        """Return the latency at given times."""
        position = np.clip(np.searchsorted(self.times_s, times_s, side="right") - 1, 0, None)
        found: Numbers = self.latency_ms[position]
        return found

    def outages_s(self, end_s: float) -> list[tuple[float, float]]:
        """Return when it was down, until ``end_s`` at most."""
        ends = np.append(self.times_s[1:], end_s)
        return [(float(a), float(b)) for a, b, up in zip(self.times_s, ends, self.up, strict=True) if not up]


def configured_courses(changes: pd.DataFrame) -> tuple[dict[Ends, ConfiguredCourse], float]:
    """Return the course of each direction that changes in a trial, and when training began in seconds of the trial."""
    if changes.empty:
        return {}, 0.0
    began_ns = float(changes["due_ns"].min())
    found: dict[Ends, ConfiguredCourse] = {}
    for (source, destination), rows in changes.groupby(["source", "destination"], sort=True):
        own = rows.sort_values("due_ns", kind="stable")
        due_ns = own["due_ns"].to_numpy(np.float64)
        applied_ns = own["applied_ns"].to_numpy(np.float64)
        at_ns = np.maximum(np.where(np.isnan(applied_ns), due_ns, applied_ns), began_ns)
        late_ns = np.nan_to_num(applied_ns - due_ns)[1:]
        found[str(source), str(destination)] = ConfiguredCourse(
            (at_ns - began_ns) / 1e9,
            own["latency_ns"].to_numpy(np.float64) / 1e6,
            own["rate_bps"].to_numpy(np.float64),
            own["node_pair_rate_bps"].to_numpy(np.float64),
            own["up"].to_numpy(bool),
            float(late_ns.max(initial=0.0)) / 1e9,
        )
    return found, began_ns / 1e9


def configured_latencies_ms(manifest: Mapping[str, Any], point: int) -> dict[Ends, float]:
    """Return the first latency of every directed link at a sweep point; a manifest may lack it."""
    points = manifest.get("sweep_points") or ()
    entry: Mapping[str, Any] = next((each for each in points if each.get("index") == point), {})
    return {ends: float(link["latency_ns"]) / 1e6 for ends, link in directed_links(entry) if "latency_ns" in link}


def longest(courses: Mapping[str, Mapping[Ends, ConfiguredCourse]]) -> dict[Ends, ConfiguredCourse]:
    """Return each direction's course from the trial that saw the most of it."""
    found: dict[Ends, ConfiguredCourse] = {}
    for own in courses.values():
        for ends, course in own.items():
            if ends not in found or len(course.times_s) > len(found[ends].times_s):
                found[ends] = course
    return found
