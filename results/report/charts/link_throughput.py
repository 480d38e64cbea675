"""Draw the throughput of every directed link over time, with a lane for each variant.

It is the growth of the link's counter in equal bins.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from wanbed.results.metrics import NS_PER_S
from wanbed.results.metrics.bootstrap import FEWEST_REPEATS, Interval, moment_intervals
from wanbed.results.reading.links import ConfiguredRates, configured_rates
from wanbed.results.reading.trial_rows import TrialRows
from wanbed.results.records.schema import BACKGROUND
from wanbed.results.report.charts.chart import (
    Chart,
    Drawing,
    LegendEntry,
    PicturePlace,
    panel_title,
    panel_width_pt,
    panels,
)
from wanbed.results.report.charts.colours import BLACK, GREY, Style, Styles, lightened
from wanbed.results.report.charts.swept_points import DrawnPoint, at_their_point
from wanbed.results.report.reported_runs import ReportedRuns
from wanbed.results.text import interval_text, list_text, rate_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LinkRates:
    """The mean rate of one directed link in each of several consecutive bins of equal length.

    ``edges_ns`` has one more entry than ``rates_bps``. The sum of the rates times the bin length is the bits sent.
    """

    edges_ns: Numbers
    rates_bps: Numbers


def link_rates(
    link_samples: pd.DataFrame, until_ns: int, bins: int, shortest_ns: int = 0, scope: str = "link"
) -> dict[tuple[str, str], LinkRates]:
    """Return the rates of every directed link, or ``node_pair``, of one trial, from its first sample to ``until_ns``.

    The keys are (source, destination). The counter is interpolated linearly between samples. There are at most
    ``bins`` bins, fewer if they would be shorter than the mean time between samples or than ``shortest_ns``; one bin
    is always left. Links with fewer than two samples are left out.
    """
    found = {}
    for link, times_ns, sent in _counters(link_samples, scope):
        end_ns = max(float(until_ns), times_ns[-1])
        if len(times_ns) < 2 or end_ns <= times_ns[0]:
            continue
        most = max(1, int((end_ns - times_ns[0]) // shortest_ns)) if shortest_ns else bins
        edges_ns = np.linspace(times_ns[0], end_ns, min(bins, most, len(times_ns) - 1) + 1)
        found[link] = LinkRates(edges_ns, _rates_bps(edges_ns, times_ns, sent))
    return found


def _background_rates(
    link_samples: pd.DataFrame, flows: Sequence[Mapping[str, Any]], until_ns: int, bins: int, shortest_ns: int
) -> dict[tuple[str, str], LinkRates]:
    """Return the rate of all flows in the background together over each directed link; {} if there were none.

    ``flows`` are those that the trial's facts list; the other arguments are those of ``link_rates``.
    """
    rates = link_rates(link_samples, until_ns, bins, shortest_ns, scope=BACKGROUND)
    found: dict[tuple[str, str], LinkRates] = {}
    for flow in flows:
        own = rates.get((str(flow["hosts"][0]), str(flow["hosts"][1])))
        link = str(flow["source"]), str(flow["destination"])
        if own is not None:
            # All flows are sampled at the same times, and so have the same bins.
            found[link] = LinkRates(own.edges_ns, own.rates_bps + (found[link].rates_bps if link in found else 0.0))
    return found


def _rates_within(
    link_samples: pd.DataFrame, edges_ns: Mapping[tuple[str, str], Numbers]
) -> dict[tuple[str, str], Numbers]:
    """Return the rates of one trial's directed links in bit/s, in given bins, for example those of another trial."""
    return {
        link: _rates_bps(edges_ns[link], times_ns, sent)
        for link, times_ns, sent in _counters(link_samples)
        if link in edges_ns
    }


def _counters(link_samples: pd.DataFrame, scope: str = "link") -> Iterator[tuple[tuple[str, str], Numbers, Numbers]]:
    """Yield every directed link, or ``node_pair``, with the times in ns of its samples, and the bytes counted."""
    links = link_samples[(link_samples["scope"] == scope).to_numpy(bool)]
    for (source, destination), own in links.groupby(["source", "destination"], sort=False):
        ordered = own.sort_values("time_ns", kind="stable")
        times_ns, sent = (ordered[name].to_numpy(np.float64) for name in ("time_ns", "wire_bytes"))
        yield (str(source), str(destination)), times_ns, sent


def _rates_bps(edges_ns: Numbers, times_ns: Numbers, sent: Numbers) -> Numbers:
    rates_bps: Numbers = np.diff(np.interp(edges_ns, times_ns, sent)) * 8e9 / np.diff(edges_ns)
    return rates_bps


MAX_LINKS = 6

MAX_LANES = 10

MAX_VARIANTS_READ = 4

BINS = 240

PEAK_BIN_NS = 250_000_000
"""The shortest bin whose rate is reported as a peak. A busy machine reads counters some milliseconds late, which would
make a link appear faster than it can be in a bin of a few milliseconds."""

_LINK_LINE, _PAIR_LINE = "--", ":"

_BACKGROUND = Style(BLACK, line="-.")

_ROOM = 1.15
"""The height of a lane, as a multiple of the highest rate drawn in it."""

_HIGHEST_TICK = 0.75
"""The highest position of a tick as a share of a lane: its label must not touch the zero of the lane above."""

_CONFIGURED_IN_VIEW = 2.5
"""A configured rate is drawn, and lanes made high enough for it, up to this multiple of the highest measured rate."""


@dataclass(frozen=True)
class _Series:
    variant: str
    run: str
    rates: Mapping[tuple[str, str], LinkRates]
    smoothed: Mapping[tuple[str, str], LinkRates]
    intervals: Mapping[tuple[str, str], Interval]
    """The intervals of the median over repeats in the bins of ``smoothed``; empty if there are too few repeats."""
    repeats: int
    background: Mapping[tuple[str, str], LinkRates]
    """The rates at which background flows sent over each link beside the training; empty if there were none."""


@dataclass(frozen=True)
class _Content:
    """The content of one picture; ``configured`` has only the configured rates that are drawn."""

    series: Sequence[_Series]
    links: Sequence[tuple[str, str]]
    lanes: Sequence[str]
    configured: Mapping[tuple[str, str], ConfiguredRates]
    styles: Styles


def link_throughput_chart(reported: ReportedRuns, styles: Styles) -> Chart | None:
    """Draw each variant's typical trial at each run's drawn point; None if no link carried anything.

    Links that carried most come first. At most ``MAX_LINKS`` links and ``MAX_LANES`` variants are drawn.
    """
    series: list[_Series] = []
    points: list[str] = []
    configured: dict[tuple[str, str], ConfiguredRates] = {}
    for label, own in reported.drawn.items():
        if own is None:
            continue
        points.append(own.where)
        configured |= configured_rates(own.run.manifest, own.point)
        series += [_series(own, label, variant) for variant in own.typical]
    carried: dict[tuple[str, str], float] = {}
    for each in series:
        for link, rates in each.rates.items():
            carried[link] = carried.get(link, 0) + float((rates.rates_bps * np.diff(rates.edges_ns)).sum())
    links = sorted((link for link in carried if carried[link]), key=lambda link: -carried[link])
    variants = list(dict.fromkeys(each.variant for each in series))
    if not links:
        return None
    shown, lanes = links[:MAX_LINKS], variants[:MAX_LANES]
    peak_bps = max(float(each.rates[link].rates_bps.max()) for each in series for link in each.rates)
    drawn_configured = {
        link: ConfiguredRates(*(_in_view(rate, peak_bps) for rate in (found.link_bps, found.node_pair_bps)))
        for link in shown
        if (found := configured.get(link)) is not None
    }

    def paint(figure: "Figure", layout: PicturePlace) -> float:
        return _paint(figure, layout, _Content(series, shown, lanes, drawn_configured, styles))

    title = f"Link throughput over time{at_their_point(points)}"
    reading = _reading(series, shown, configured, drawn_configured) + _repeats_reading(series)
    if len(shown) < len(links):
        reading += f" Only the {len(shown)} of {len(links)} directed links that carried most are drawn."
    if len(lanes) < len(variants):
        reading += f" The first {len(lanes)} of {len(variants)} variants are drawn."
    lines = _configured_lines(styles, list(reported.drawn))
    legend = (*_series_legend(styles, lanes, list(reported.drawn)), *_configured_legend(drawn_configured, lines))
    if any(each.background for each in series):
        legend += (LegendEntry("traffic in the background", _BACKGROUND),)
        reading += f" Traffic in the background, as means over {PEAK_BIN_NS / NS_PER_S:g} s at least, is not included."
    drawing = Drawing(f"{title}. {reading}", "all-throughput", paint, plain=True)
    return Chart("link-throughput", title, legend, (drawing,), reading)


def _series(drawn: DrawnPoint, label: str, variant: str) -> _Series:
    typical, measured = drawn.typical[variant], drawn.repeats[variant]
    end_ns, samples = int(typical.spans["end_ns"].max()), typical.link_samples
    smoothed = link_rates(samples, end_ns, BINS, PEAK_BIN_NS)
    # A simulation reads counters exactly at the recorded times, and needs no smoothing.
    rates = link_rates(samples, end_ns, BINS) if drawn.run.simulated else smoothed
    intervals = _intervals(measured, smoothed)
    background = _background_rates(samples, typical.trial.facts.get("background") or (), end_ns, BINS, PEAK_BIN_NS)
    return _Series(variant, label, rates, smoothed, intervals, len(measured), background)


def _intervals(
    trials: Sequence[TrialRows], smoothed: Mapping[tuple[str, str], LinkRates]
) -> dict[tuple[str, str], Interval]:
    if len(trials) < FEWEST_REPEATS:
        return {}
    edges_ns = {link: rates.edges_ns for link, rates in smoothed.items()}
    repeats = [_rates_within(trial.link_samples, edges_ns) for trial in trials]
    found = {}
    for link in edges_ns:
        own = [rates_bps[link] for rates_bps in repeats if link in rates_bps]
        interval = moment_intervals(np.array(own))
        if interval is not None:
            found[link] = interval
    return found


def _in_view(rate_bps: float | None, peak_bps: float) -> float | None:
    return rate_bps if rate_bps is not None and rate_bps <= _CONFIGURED_IN_VIEW * peak_bps else None


def _series_legend(styles: Styles, variants: Sequence[str], runs: Sequence[str]) -> list[LegendEntry]:
    """Return each variant's colour and, for several runs, the area of the first and the lines of the others."""
    entries = [LegendEntry(variant, Style(styles.variants[variant].colour)) for variant in variants]
    if len(runs) > 1:
        of_runs = [styles.runs[run] for run in runs]
        entries += [
            LegendEntry(run, Style(lightened(GREY)) if _is_area(style) else style)
            for run, style in zip(runs, of_runs, strict=True)
        ]
    return entries


def _is_area(style: Style) -> bool:
    """Return whether a run is drawn as an area. The first run is; the others are lines over it."""
    return style.filled and style.line == "-"


def _configured_lines(styles: Styles, runs: Sequence[str]) -> tuple[Style, Style]:
    """Return the styles for the configured rates of a link and of a node pair, in lines that no run has if possible."""
    if len(runs) == 1:
        return Style(GREY, line=_LINK_LINE), Style(GREY, line=_PAIR_LINE)
    taken = {styles.runs[run].line for run in runs}
    return Style(BLACK, line="-"), Style(BLACK, line=next((line for line in (":", "-.") if line not in taken), ":"))


def _configured_legend(
    configured: Mapping[tuple[str, str], ConfiguredRates], lines: tuple[Style, Style]
) -> list[LegendEntry]:
    entries = []
    of_link, of_pair = lines
    if any(each.link_bps for each in configured.values()):
        entries.append(LegendEntry("configured rate of the link", of_link))
    if any(each.node_pair_bps for each in configured.values()):
        entries.append(LegendEntry("configured rate of one node pair", of_pair))
    return entries


def _paint(figure: "Figure", layout: PicturePlace, of: _Content) -> float:
    columns = 1 if layout.narrow else min(2, len(of.links))
    axes, rows = panels(figure, len(of.links), columns, sharex=True, sharey=True)
    configured_bps = [rate for each in of.configured.values() for rate in (each.link_bps, each.node_pair_bps) if rate]
    measured = [rates for each in of.series for rates in (*each.rates.values(), *each.background.values())]
    top_bps = _ROOM * max([*configured_bps, *(float(rates.rates_bps.max()) for rates in measured)])
    unit_bps, unit = (1e9, "Gbit/s") if top_bps >= 2e9 else (1e6, "Mbit/s") if top_bps >= 2e6 else (1e3, "kbit/s")
    width_pt, further_lines = panel_width_pt(figure, columns), 0
    for position, (axis, link) in enumerate(zip(axes, of.links, strict=True)):
        further_lines = max(further_lines, panel_title(axis, " to ".join(map(layout.label, link)), width_pt))
        for lane, variant in enumerate(of.lanes):
            base_bps = (len(of.lanes) - 1 - lane) * top_bps
            _paint_lane(axis, of, link, variant=variant, base_bps=base_bps, layout=layout)
        _label_lanes(axis, len(of.lanes), top_bps, unit_bps)
        axis.set_xlim(0, max(float(rates.edges_ns[-1]) for rates in measured) / NS_PER_S)
        if position % columns == 0:
            axis.set_ylabel(unit)
        if position + columns >= len(of.links):
            axis.set_xlabel("time since the trial began (s)")
            axis.tick_params(labelbottom=True)
    return rows * (60 + further_lines * layout.line_px + len(of.lanes) * (34 if layout.narrow else 40)) + 20


def _paint_lane(
    axis: "Axes", of: _Content, link: tuple[str, str], *, variant: str, base_bps: float, layout: PicturePlace
) -> None:
    axis.axhline(base_bps, color=GREY, linewidth=0.6 * layout.scale)
    for each in of.series:
        if each.variant == variant and link in each.rates:
            style = of.styles.of_series(variant, each.run)
            if len(of.styles.runs) > 1 and _is_area(style):
                style = replace(style, colour=lightened(style.colour))
            _step(axis, each.rates[link], base_bps, style, layout)
            if link in each.intervals and _is_area(style):
                _band(axis, each.smoothed[link], each.intervals[link], base_bps, layout)
        if each.variant == variant and link in each.background:
            _step(axis, each.background[link], base_bps, _BACKGROUND, layout)
    if link in of.configured:
        lines = _configured_lines(of.styles, list(of.styles.runs))
        rates = of.configured[link]
        for rate, style in zip((rates.link_bps, rates.node_pair_bps), lines, strict=True):
            if rate is not None:
                axis.axhline(base_bps + rate, color=style.colour, linestyle=style.line, linewidth=layout.scale)


def _step(axis: "Axes", rates: LinkRates, base_bps: float, style: Style, layout: PicturePlace) -> None:
    edges_s = rates.edges_ns / NS_PER_S
    if _is_area(style):
        axis.stairs(base_bps + rates.rates_bps, edges_s, baseline=base_bps, fill=True, color=style.colour, linewidth=0)
    else:
        axis.stairs(
            base_bps + rates.rates_bps, edges_s, baseline=base_bps, color=style.colour, linestyle=style.line,
            linewidth=layout.scale,
        )  # fmt: skip


def _band(axis: "Axes", smoothed: LinkRates, interval: Interval, base_bps: float, layout: PicturePlace) -> None:
    """Fill between the interval's ends; the outline makes it visible on an area of any colour and in a grey print."""
    low_bps, high_bps = interval
    axis.stairs(
        base_bps + high_bps, smoothed.edges_ns / NS_PER_S, baseline=base_bps + low_bps, fill=True,
        facecolor=(1, 1, 1, 0.45), edgecolor=BLACK, linewidth=0.6 * layout.scale,
    )  # fmt: skip


def _label_lanes(axis: "Axes", lanes: int, top_bps: float, unit_bps: float) -> None:
    """Label zero and one round rate at every lane."""
    power = 10 ** np.floor(np.log10(top_bps / _ROOM))
    round_bps = max(step * power for step in (0.5, 1, 2, 5) if step * power <= _HIGHEST_TICK * top_bps)
    bases = [lane * top_bps for lane in range(lanes)]
    axis.set_yticks([place for base in bases for place in (base, base + round_bps)])
    axis.set_yticklabels([text for _ in bases for text in ("0", f"{round_bps / unit_bps:g}")])
    axis.set_ylim(0, lanes * top_bps)


def _repeats_reading(series: Sequence[_Series]) -> str:
    """Explain which of several repeats is drawn, and what the bands are."""
    most = max(each.repeats for each in series)
    if most == 1:
        return ""
    reading = f" Of up to {most} repeats the one with the typical iteration time is drawn."
    if any(each.intervals for each in series):
        several = len({each.run for each in series}) > 1
        reading += f" Bands are 95 % intervals of the median over repeats{', of the first run' if several else ''}."
    return reading


def _reading(
    series: Sequence[_Series],
    links: Sequence[tuple[str, str]],
    configured: Mapping[tuple[str, str], ConfiguredRates],
    drawn: Mapping[tuple[str, str], ConfiguredRates],
) -> str:
    first = links[0]
    peaks: dict[str, list[str]] = {}
    for each in series:
        if first in each.smoothed:
            peaks.setdefault(each.variant, []).append(rate_text(float(each.smoothed[first].rates_bps.max())))
    lines = list_text(
        [f"{list_text(rates)} with {variant}" for variant, rates in list(peaks.items())[:MAX_VARIANTS_READ]]
    )
    order = ", in the order of the runs," if len({each.run for each in series}) > 1 else ""
    bins_s = [
        float(rates.edges_ns[1] - rates.edges_ns[0]) / NS_PER_S for each in series for rates in each.smoothed.values()
    ]
    span = interval_text(min(bins_s), max(bins_s))
    reading = f"From {first[0]} to {first[1]} at most{order} {lines}, headers included, as means over {span}."
    of_first = configured.get(first)
    beyond = [
        f"{rate_text(rate)} of the {what}"
        for what, rate, shown in (
            ("link", of_first and of_first.link_bps, first in drawn and drawn[first].link_bps),
            ("node pair", of_first and of_first.node_pair_bps, first in drawn and drawn[first].node_pair_bps),
        )
        if rate and not shown
    ]
    return reading + (f" Configured rates far above what is drawn: {list_text(beyond)}." if beyond else "")
