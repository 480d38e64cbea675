"""Draw links that change: what they were configured to over time, and the rate and round-trip time measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from wanbed.results.metrics import NS_PER_S
from wanbed.results.reading.links import changing_links, configured_latencies_ms
from wanbed.results.reading.trial_rows import TrialRows
from wanbed.results.report.charts.chart import (
    Chart,
    Drawing,
    LegendEntry,
    PicturePlace,
    panel_title,
    panel_width_pt,
    panels,
    series_legend,
)
from wanbed.results.report.charts.colours import BLACK, Style, Styles
from wanbed.results.report.charts.link_throughput import LinkRates, link_rates
from wanbed.results.report.charts.swept_points import at_their_point
from wanbed.results.report.reported_runs import ReportedRuns
from wanbed.results.text import list_text, milliseconds_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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


def longest(courses: Mapping[str, Mapping[Ends, ConfiguredCourse]]) -> dict[Ends, ConfiguredCourse]:
    """Return each direction's course from the trial that saw the most of it."""
    found: dict[Ends, ConfiguredCourse] = {}
    for own in courses.values():
        for ends, course in own.items():
            if ends not in found or len(course.times_s) > len(found[ends].times_s):
                found[ends] = course
    return found


MAX_DIRECTIONS = 4

MAX_VARIANTS = 6

MAX_MARKS = 40
"""The most changes of a link that are marked; more would cover the picture."""

BINS = 160

SHORTEST_BIN_NS = 100_000_000

_CONFIGURED = Style(BLACK, line="-")

_OUTAGE = "#DDDDDD"

_UNITS = ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"))

_MARK = "#666666"


@dataclass(frozen=True)
class _Series:
    """The measurements of one trial. Times are seconds since training began."""

    variant: str
    run: str
    rates: Mapping[tuple[Ends, str], LinkRates]
    """By the direction and the scope, ``link`` or ``node_pair``: of node pairs, the highest in each bin."""
    rtt: Mapping[frozenset[str], tuple[Numbers, Numbers]]
    began_s: float
    end_s: float


@dataclass(frozen=True)
class _Content:
    series: Sequence[_Series]
    courses: Mapping[Ends, ConfiguredCourse]
    directions: Sequence[Ends]
    constant_ms: Mapping[Ends, float]
    """The first latency of every direction, whether it changes or not."""
    styles: Styles

    @property
    def end_s(self) -> float:
        """The end of the longest trial, in seconds since training began."""
        return max(each.end_s for each in self.series)


def changing_links_chart(reported: ReportedRuns, styles: Styles) -> Chart | None:
    """Draw each variant's typical trial at its run's drawn point; None if no link changed in any."""
    series: list[_Series] = []
    courses: dict[str, dict[Ends, ConfiguredCourse]] = {}
    points: list[str] = []
    constant_ms: dict[Ends, float] = {}
    synthetic = False
    for label, own in reported.drawn.items():
        if own is None or own.run.link_changes.empty:
            continue
        points.append(own.where)
        constant_ms |= configured_latencies_ms(own.run.manifest, own.point)
        synthetic |= any(each.synthetic for each in changing_links(own.run.manifest))
        for variant, typical in own.typical.items():
            found, began_s = configured_courses(typical.link_changes)
            if found:
                courses[f"{label} {variant}"] = found
                series.append(_series(typical, label, began_s))
    if not series:
        return None
    all_courses = longest(courses)
    directions = list(all_courses)[:MAX_DIRECTIONS]
    variants = list(dict.fromkeys(each.variant for each in series))[:MAX_VARIANTS]
    content = _Content(
        [each for each in series if each.variant in variants], all_courses, directions, constant_ms, styles
    )

    def paint(figure: "Figure", layout: PicturePlace) -> float:
        return _paint(figure, layout, content)

    title = f"Links that change{at_their_point(points)}"
    reading = _reading(content, all_courses, synthetic=synthetic)
    legend = (
        *series_legend(styles, variants, dict.fromkeys(each.run for each in series)),
        LegendEntry("configured, with a mark at each change", _CONFIGURED),
        *([LegendEntry("down", Style(_OUTAGE))] if any(not all(each.up) for each in all_courses.values()) else []),
    )
    return Chart("changing-links", title, legend, (Drawing(f"{title}. {reading}", "all-changes", paint),), reading)


def _series(typical: TrialRows, label: str, began_s: float) -> _Series:
    spans, samples = typical.spans, typical.link_samples
    end_ns = int(spans["end_ns"].max())
    home = {str(host): str(datacenter) for host, datacenter in zip(spans["host"], spans["datacenter"], strict=True)}
    rates = {(ends, "link"): found for ends, found in link_rates(samples, end_ns, BINS, SHORTEST_BIN_NS).items()}
    pairs: dict[Ends, list[LinkRates]] = {}
    for (source, destination), found in link_rates(samples, end_ns, BINS, SHORTEST_BIN_NS, scope="node_pair").items():
        ends = home.get(source, ""), home.get(destination, "")
        pairs.setdefault(ends, []).append(found)
    for ends, found_rates in pairs.items():
        edges = found_rates[0].edges_ns
        alike = [each.rates_bps for each in found_rates if len(each.edges_ns) == len(edges)]
        rates[ends, "node_pair"] = LinkRates(edges, np.max(alike, axis=0))
    rtt = _round_trips(typical.tcp_samples, home, began_s)
    return _Series(typical.trial.variant, label, rates, rtt, began_s, end_ns / NS_PER_S - began_s)


def _round_trips(
    samples: pd.DataFrame, home: Mapping[str, str], began_s: float
) -> dict[frozenset[str], tuple[Numbers, Numbers]]:
    """Return the median of the smoothed round-trip times between each two datacenters, in bins."""
    if samples.empty:
        return {}
    ends = [
        frozenset((home.get(str(one), ""), home.get(str(other), "")))
        for one, other in zip(samples["source"], samples["destination"], strict=True)
    ]
    bin_ns = max(SHORTEST_BIN_NS, (int(samples["time_ns"].max()) + 1) // BINS)
    number = samples["time_ns"].to_numpy(np.int64) // bin_ns
    found: dict[frozenset[str], tuple[Numbers, Numbers]] = {}
    for pair in dict.fromkeys(ends):
        if len(pair) == 2:
            own = np.array([each == pair for each in ends], bool)
            medians = samples["rtt_ns"][own].groupby(number[own]).median()
            times_s = (medians.index.to_numpy(np.float64) + 0.5) * bin_ns / NS_PER_S - began_s
            found[pair] = times_s, medians.to_numpy(np.float64) / 1e6
    return found


def _paint(figure: "Figure", layout: PicturePlace, of: _Content) -> float:
    pairs = list(dict.fromkeys(frozenset(ends) for ends in of.directions))
    shown = [("rate", ends) for ends in of.directions]
    shown += [("rtt", next(ends for ends in of.directions if frozenset(ends) == pair)) for pair in pairs]
    columns = 1 if layout.narrow else min(2, len(shown))
    axes, rows = panels(figure, len(shown), columns, sharex=True)
    width_pt, further_lines = panel_width_pt(figure, columns), 0
    for position, (axis, (what, ends)) in enumerate(zip(axes, shown, strict=True)):
        names = list(map(layout.label, ends))
        text = f"rate, {names[0]} to {names[1]}" if what == "rate" else f"round trip, {names[0]} and {names[1]}"
        further_lines = max(further_lines, panel_title(axis, text, width_pt))
        if what == "rate":
            _paint_rate(axis, of, ends, layout)
        else:
            _paint_round_trip(axis, of, ends, layout)
        axis.set_xlim(0, of.end_s)
        axis.set_ylim(0)
        axis.grid(axis="y")
        if position + columns >= len(shown):
            axis.set_xlabel("time since training began (s)")
            axis.tick_params(labelbottom=True)
    return rows * (150 + further_lines * layout.line_px) + 30


def _scope_of(course: ConfiguredCourse) -> str:
    """Return whose rate tells how a link changed: a node pair's where it is capped, else the whole link's."""
    return "link" if np.isnan(course.node_pair_rate_bps).all() else "node_pair"


def _paint_rate(axis: "Axes", of: _Content, ends: Ends, layout: PicturePlace) -> None:
    course = of.courses[ends]
    scope = _scope_of(course)
    configured_bps = course.rate_bps if scope == "link" else course.node_pair_rate_bps
    measured = [(each, each.rates[ends, scope]) for each in of.series if (ends, scope) in each.rates]
    highest_bps = max((float(rates.rates_bps.max()) for _, rates in measured), default=0.0)
    highest_bps = max(highest_bps, float(np.nan_to_num(configured_bps).max()))
    unit_bps, unit = next(each for each in _UNITS if highest_bps >= each[0] or each is _UNITS[-1])
    for each, rates in measured:
        style = of.styles.of_series(each.variant, each.run)
        axis.stairs(
            rates.rates_bps / unit_bps, rates.edges_ns / NS_PER_S - each.began_s, baseline=None, color=style.colour,
            linestyle=style.line or "-", linewidth=1.2 * layout.scale,
        )  # fmt: skip
    _paint_configured(axis, course, configured_bps / unit_bps, of.end_s, layout)
    _shade(axis, course.outages_s(of.end_s))
    axis.set_ylabel(f"{'node pair' if scope == 'node_pair' else 'link'}, {unit}")


def _paint_round_trip(axis: "Axes", of: _Content, ends: Ends, layout: PicturePlace) -> None:
    there, back = of.courses.get(ends), of.courses.get(ends[::-1])
    for each in of.series:
        if frozenset(ends) in each.rtt:
            style = of.styles.of_series(each.variant, each.run)
            axis.plot(
                *each.rtt[frozenset(ends)], color=style.colour, linestyle=style.line or "-",
                linewidth=1.2 * layout.scale,
            )  # fmt: skip
    known = [course for course in (there, back) if course is not None]
    times_s = np.unique(np.concatenate([course.times_s for course in known]))
    constant_ms = sum(of.constant_ms.get(way, np.nan) for way in (ends, ends[::-1]) if way not in of.courses)
    total_ms = constant_ms + np.sum([course.latency_ms_at(times_s) for course in known], axis=0)
    _step(axis, times_s, total_ms, of.end_s, layout)
    for course in known:
        _shade(axis, course.outages_s(of.end_s))
        _mark(axis, course, layout)
    axis.set_ylabel("ms")


def _paint_configured(
    axis: "Axes", course: ConfiguredCourse, values: Numbers, end_s: float, layout: PicturePlace
) -> None:
    _step(axis, course.times_s, values, end_s, layout)
    _mark(axis, course, layout)


def _step(axis: "Axes", times_s: Numbers, values: Numbers, end_s: float, layout: PicturePlace) -> None:
    axis.step(
        np.append(times_s, max(end_s, float(times_s[-1]))), np.append(values, values[-1]), where="post",
        color=_CONFIGURED.colour, linewidth=1.4 * layout.scale,
    )  # fmt: skip


def _mark(axis: "Axes", course: ConfiguredCourse, layout: PicturePlace) -> None:
    if len(course.times_s) <= MAX_MARKS:
        for time_s in course.times_s[1:]:
            axis.axvline(time_s, color=_MARK, linewidth=0.9 * layout.scale, linestyle=":")


def _shade(axis: "Axes", outages_s: Sequence[tuple[float, float]]) -> None:
    for begin_s, end_s in outages_s:
        axis.axvspan(begin_s, end_s, color=_OUTAGE, linewidth=0, zorder=0)


def _reading(of: _Content, courses: Mapping[Ends, ConfiguredCourse], *, synthetic: bool) -> str:
    texts = [f"{one} to {other} {len(courses[one, other].times_s) - 1} times" for one, other in of.directions]
    reading = f"While the longest trial trained, links changed: {list_text(texts)}."
    latest_s = max(course.latest_s for course in courses.values())
    if latest_s > 0:
        reading += f" A change was applied at most {milliseconds_text(latest_s * 1e3)} after it was due."
    if any(_scope_of(courses[ends]) == "node_pair" for ends in of.directions):
        reading += " Rates are those of the busiest node pair of each moment, headers included, against its cap."
    if len(of.directions) < len(courses):
        reading += f" {len(of.directions)} of {len(courses)} directions that change are drawn."
    if synthetic:
        reading += " What changes them is synthetic: it was drawn, not measured."
    return reading
