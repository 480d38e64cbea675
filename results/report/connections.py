"""Draw the state of connections between datacenters over time, and warn where they are too few.

The chart has the round-trip time and the congestion window of each variant.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from wanbed.results.metrics import NS_PER_S
from wanbed.results.reading.trial_rows import TrialRows
from wanbed.results.report.charts.chart import Chart, Drawing, PicturePlace, series_legend, series_names
from wanbed.results.report.charts.colours import Styles
from wanbed.results.report.charts.swept_points import at_their_point
from wanbed.results.report.reported_runs import ReportedRun, ReportedRuns
from wanbed.results.text import count_text, interval_text, list_text, milliseconds_text, percent_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 80
MAX_VARIANTS = 10

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Series:
    """Medians over the connections in each bin of ``bin_s`` seconds; bins without a sample are left out."""

    variant: str
    run: str
    times_s: Numbers
    rtt_ms: Numbers
    cwnd_segments: Numbers
    bin_s: float


def connections_chart(reported: ReportedRuns, styles: Styles) -> Chart | None:
    """Draw each variant's typical trial at its run's drawn point; None if no connection was sampled."""
    series: list[_Series] = []
    points = []
    for label, own in reported.drawn.items():
        if own is None or own.run.tcp_samples.empty:
            continue
        points.append(own.where)
        series += filter(None, (_series(typical, label) for typical in own.typical.values()))
    variants = list(dict.fromkeys(each.variant for each in series))[:MAX_VARIANTS]
    series = [each for each in series if each.variant in variants]
    if not series:
        return None

    def paint(figure: "Figure", layout: PicturePlace) -> float:
        grid = (2, 1) if layout.narrow else (1, 2)
        axes = figure.subplots(*grid, squeeze=False).flat
        for axis, name, unit in zip(axes, ("rtt_ms", "cwnd_segments"), _AXES, strict=True):
            for each in series:
                style = styles.of_series(each.variant, each.run)
                axis.plot(
                    each.times_s, getattr(each, name), color=style.colour, linestyle=style.line or "-",
                    linewidth=1.5 * layout.scale, marker=style.marker, markersize=5 * layout.scale, markevery=0.1,
                    markerfacecolor=style.colour if style.filled else "white",
                )  # fmt: skip
            axis.set_ylabel(unit)
            axis.set_ylim(0)
            axis.set_xlim(0)
            axis.grid(axis="y")
            axis.set_xlabel("time since the trial began (s)")
        return 440 if layout.narrow else 260

    title = f"Connections between datacenters over time{at_their_point(points)}"
    legend = series_legend(styles, *series_names(series))
    reading = _reading(series)
    return Chart(
        "connections",
        title,
        legend,
        (Drawing(f"{title}. {reading}", "all-tcp", paint, plain=True),),
        reading,
        frozenset("xy"),
    )


_AXES = ("smoothed round-trip time (ms)", "congestion window (segments)")


def _series(typical: TrialRows, label: str) -> _Series | None:
    spans, samples = typical.spans, typical.tcp_samples
    home = dict(zip(spans["host"], spans["datacenter"], strict=True))
    crossing = samples["source"].map(home).to_numpy(object) != samples["destination"].map(home).to_numpy(object)
    samples = samples[crossing]
    if samples.empty:
        return None
    end_ns = int(samples["time_ns"].max()) + 1
    number = samples["time_ns"].to_numpy(np.int64) * BINS // end_ns
    medians = samples.groupby(number)[["rtt_ns", "cwnd_segments"]].median()
    times_s = (medians.index.to_numpy(np.float64) + 0.5) * end_ns / BINS / NS_PER_S
    rtt_ns, cwnd = (medians[name].to_numpy(np.float64) for name in ("rtt_ns", "cwnd_segments"))
    return _Series(typical.trial.variant, label, times_s, rtt_ns / 1e6, cwnd, end_ns / BINS / NS_PER_S)


def _reading(series: Sequence[_Series]) -> str:
    medians: dict[str, list[str]] = {}
    for each in series:
        rtt, cwnd = milliseconds_text(float(np.median(each.rtt_ms))), float(np.median(each.cwnd_segments))
        medians.setdefault(each.variant, []).append(f"{rtt} and {cwnd:.0f} segments")
    lines = list_text([f"{', '.join(values)} with {variant}" for variant, values in medians.items()])
    order = ", in the order of the runs" if len({each.run for each in series}) > 1 else ""
    bins_s = [each.bin_s for each in series]
    width = interval_text(min(bins_s), max(bins_s))
    return f"Medians over connections, in bins of {width}; over the whole trial{order}: {lines}."


def cut_warnings(own: ReportedRun) -> list[str]:
    """Return one warning for each variant that is limited at any node pair, with its worst one; empty if none is."""
    found: dict[str, list[tuple[float, str, str, int]]] = {}
    for trial in own.run.trials:
        for one, other, wanted, carried in trial.facts.get("connections_cut") or ():
            found.setdefault(trial.variant, []).append((float(carried), str(one), str(other), int(wanted)))
    return [_cut_warning(variant, cuts) for variant, cuts in found.items()]


def _cut_warning(variant: str, cuts: list[tuple[float, str, str, int]]) -> str:
    carried, one, other, wanted = min(cuts)
    pairs = len({(one, other) for _, one, other, _ in cuts})
    return (
        f"connections: auto of {variant} reached the limit of connections between two hosts, in "
        f"{count_text(pairs, 'node pair')}: {wanted} would fill the cap between {one} and {other}; the allowed "
        f"connections carry at most {percent_text(carried)} of it."
    )
