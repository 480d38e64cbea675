"""Divide the GPU time into training, prefill and idle time by cause: one bar per variant and sweep point.

Bars are hatched with plain lines, which print sharply: a browser prints a pattern of SVG as a bitmap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from wanbed.results import metrics
from wanbed.results.metrics import COLLECTIVE, IDLE_CAUSES, OTHER, TRANSFER, Window
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import StoredTrial, point_text
from wanbed.results.records.span_log import ALL_REDUCE, PREFILL
from wanbed.results.report.charts.chart import (
    Chart,
    Drawing,
    LegendEntry,
    PicturePlace,
    heading_across,
    segments,
    series_names,
)
from wanbed.results.report.charts.colours import (
    BLUE,
    GREY,
    LIGHT_ORANGE,
    LIGHT_PURPLE,
    LIGHT_SKY_BLUE,
    LIGHT_VERMILLION,
    PREFILL_COLOUR,
    Style,
    Styles,
)
from wanbed.results.report.charts.letters import line_count, wrapped
from wanbed.results.report.reported_runs import ReportedRuns, headline_rows
from wanbed.results.text import NO_SWEEP, list_text, percent_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRAINING = "training"

PARTS = (TRAINING, PREFILL, *IDLE_CAUSES)
"""The parts of the GPU time of a schedule."""

PROGRAM_IDLE_CAUSES = (COLLECTIVE, TRANSFER, OTHER)

PARTS_OF_PROGRAM = (TRAINING, *PROGRAM_IDLE_CAUSES)
"""The parts of the GPU time of a user's program, of which neither stages nor microbatches are known."""


@dataclass(frozen=True)
class GpuTimeShares:
    """The GPU time of one variant in one sweep point, summed over its training GPUs and repeats.

    ``parts_ns`` has the nanoseconds of each of ``PARTS``, or of ``PARTS_OF_PROGRAM``. They add up to ``total_ns``: the
    number of GPUs times the measured window, summed over repeats. Of a program's GPUs those count that were profiled,
    each from the begin of its first profiled iteration to the end of its last.
    """

    run: str
    point: int
    values: Mapping[str, str]
    variant: str
    parts_ns: Mapping[str, int]
    total_ns: int

    @property
    def bubbles_ns(self) -> int:
        """The time in which GPUs did not train, whether prefill filled it or not."""
        return self.total_ns - self.parts_ns[TRAINING]

    def share(self, part: str) -> float:
        """Return a part's share of ``total_ns``, a fraction; 0 for a part that these GPUs cannot have."""
        return self.parts_ns.get(part, 0) / self.total_ns


def gpu_time_shares(run: Run, label: str = "", points: Sequence[int] | None = None) -> list[GpuTimeShares]:
    """Return the shares of each sweep point and variant with a measured window, in the order of the run's trials.

    If ``points`` is given, only of these sweep points.
    """
    parts_ns: dict[tuple[int, str], dict[str, int]] = {}
    values: dict[int, Mapping[str, str]] = {}
    for own in run.rows.values():
        trial = own.trial
        if points is not None and trial.point not in points:
            continue
        if own.window is None or not own.window.length_ns:
            continue
        if trial.program is None:
            found = _of_schedule(own.spans_of_part, own.window, trial)
        else:
            found = _of_program(own.spans, trial)
        values[trial.point] = trial.values
        sums = parts_ns.setdefault((trial.point, trial.variant), dict.fromkeys(found, 0))
        for part, part_ns in found.items():
            sums[part] += part_ns
    return [
        GpuTimeShares(label, point, values[point], variant, sums, sum(sums.values()))
        for (point, variant), sums in parts_ns.items()
        if any(sums.values())
    ]


def _of_schedule(spans: pd.DataFrame, window: Window, trial: StoredTrial) -> dict[str, int]:
    """Return the GPU time of a trial, given the spans of one of its equal parts."""
    waited = spans if trial.sync_every is None else metrics.awaited(spans)
    causes = metrics.idle_causes(waited, window, sends_block=trial.sends_block)
    alone, both = metrics.gpu_utilizations(spans, window)
    possible_ns = len(causes) * window.length_ns * trial.equal_parts
    trained_ns, filled_ns = (round(each * possible_ns) for each in (alone or 0.0, (both or 0.0) - (alone or 0.0)))
    # GPUs may be watched for longer than the periods: the causes share what is idle of these as they share that.
    watched_ns = [*accumulate((trial.equal_parts * int(cause_ns) for cause_ns in causes.sum()), initial=0)]
    idle_ns = possible_ns - trained_ns - filled_ns
    edges_ns = [round(idle_ns * each / max(1, watched_ns[-1])) for each in watched_ns]
    return {
        TRAINING: trained_ns,
        PREFILL: filled_ns,
        **{str(cause): end - begin for cause, (begin, end) in zip(causes.columns, pairwise(edges_ns), strict=True)},
    }


def _of_program(spans: pd.DataFrame, trial: StoredTrial) -> dict[str, int]:
    parts = metrics.program_parts(spans, metrics.profiled_iterations(spans, trial.profiled_iterations))
    return {
        TRAINING: int(metrics.program_busy(parts)["busy_ns"].sum()),
        **{cause: int(parts[cause].sum()) for cause in PROGRAM_IDLE_CAUSES},
    }


Segments = npt.NDArray[np.float64]
"""Segments, shape (n, 2, 2): start and end, each x and y in pixels from a rectangle's upper left corner, y down."""

MAX_BARS = 48

MAX_VARIANTS_READ = 4
"""The reading describes up to this many variants; of more, only the two that trained most and least."""

LABEL_SHARE, NARROW_LABEL_SHARE = 0.3, 0.42
"""The share of a picture's width that the bars' labels may take, wide or narrow; longer ones are broken into lines."""

_STYLES = {
    "training": Style(BLUE),
    "prefill": Style(PREFILL_COLOUR, hatch="|", hatch_colour=GREY),
    "activation": Style(LIGHT_ORANGE, hatch="/", hatch_colour=GREY),
    "gradient": Style(LIGHT_SKY_BLUE, hatch="\\", hatch_colour=GREY),
    "link": Style(LIGHT_VERMILLION, hatch="x", hatch_colour=GREY),
    "all_reduce": Style(LIGHT_PURPLE, hatch=".", hatch_colour=GREY),
    "schedule": Style("#8C8C8C", hatch="-"),
    "fill_drain": Style("#DDDDDD"),
    # A schedule's all-reduce is a collective: in a chart that has both, they are one colour and one entry.
    COLLECTIVE: Style(LIGHT_PURPLE, hatch=".", hatch_colour=GREY),
    TRANSFER: Style("#DDE8C4", hatch="/", hatch_colour=GREY),
    OTHER: Style("#C4C4C4", hatch="\\"),
}

PART_NAMES = {
    "training": "training",
    "prefill": "prefill in the bubbles",
    "activation": "idle: waiting for activation",
    "gradient": "idle: waiting for gradient",
    "link": "idle: waiting for the link",
    "all_reduce": "idle: during the all-reduce",
    "schedule": "idle: held by the schedule",
    "fill_drain": "idle: in pipeline fill and drain",
    COLLECTIVE: "idle: in collectives",
    TRANSFER: "idle: in sends and receives",
    OTHER: "idle: for other reasons (Python, launching, data)",
}

_DRAWN = (*PARTS, *PROGRAM_IDLE_CAUSES)

_BAR, _GROUP_GAP, _LABEL_GAP = 22, 26, 4

_PERCENT_PX, _NARROW_PERCENT_PX = 7.0, 2.3
"""The approximate width of one per cent in pixels, which determines the slant of hatches."""


def drawn_points(points: Sequence[int], bars_a_point: int) -> list[int]:
    """Choose the sweep points to draw: all, or evenly spaced ones if there were more than ``MAX_BARS`` bars."""
    most = max(2, MAX_BARS // max(1, bars_a_point))
    if len(points) <= most:
        return list(points)
    return [points[round(number * (len(points) - 1) / (most - 1))] for number in range(most)]


def drawn_shares(reported: ReportedRuns) -> list[GpuTimeShares]:
    """Return the shares in those sweep points that the chart can show."""
    points = reported.points
    bars_a_point = len({(row.run, row.variant) for row in reported.headline})
    chosen = {points[number] for number in drawn_points(range(len(points)), bars_a_point)}
    shares: list[GpuTimeShares] = []
    for own in reported.runs:
        shown = sorted({row.point for row in own.once(headline_rows) if row.where in chosen})
        shares += gpu_time_shares(own.run, own.label, shown)
    return shares


def gpu_time_chart(reported: ReportedRuns, _: Styles) -> Chart | None:
    """Draw the bars, grouped by sweep point; None if there are none."""
    return shares_chart(reported.once(drawn_shares), len(reported.points))


def shares_chart(shares: Sequence[GpuTimeShares], all_points: int) -> Chart | None:
    """Draw the bars of these shares. ``all_points`` also counts points not drawn."""
    if not shares:
        return None
    variants, runs = series_names(shares)
    groups: dict[str, list[GpuTimeShares]] = {}
    for each in shares:
        groups.setdefault(point_text(each.values), []).append(each)
    for own in groups.values():
        own.sort(key=lambda each: (variants.index(each.variant), runs.index(each.run)))
    parts = [part for part in _DRAWN if any(each.share(part) for each in shares)]
    named = [part for part in parts if part != ALL_REDUCE or COLLECTIVE not in parts]
    legend = tuple(LegendEntry(PART_NAMES[part], _STYLES[part]) for part in named)

    def paint(figure: "Figure", layout: PicturePlace) -> float:
        return _paint(figure, groups, parts, len(runs) > 1, layout)

    reading = _reading(groups, len(runs) > 1)
    if len(groups) < all_points:
        reading += f" {len(groups)} of {all_points} sweep points are drawn."
    title = "What the GPUs' time went into"
    return Chart(
        "gpu-time", title, legend, (Drawing(f"{title}. {reading}", "all-gpu-time", paint, plain=True),), reading
    )


def _paint(
    figure: "Figure",
    groups: Mapping[str, Sequence[GpuTimeShares]],
    parts: Sequence[str],
    several: bool,
    layout: PicturePlace,
) -> float:
    axis = figure.subplots()
    width_pt = 72 * figure.get_figwidth()
    label_pt = width_pt * (NARROW_LABEL_SHARE if layout.narrow else LABEL_SHARE)
    top, ticks, labels = 0.0, [], []
    for own in groups.values():
        if where := point_text(own[0].values, layout.labels) or (NO_SWEEP if len(groups) > 1 else ""):
            heading = wrapped(where, 0.97 * width_pt, bold=True)
            top += _GROUP_GAP + (line_count(heading) - 1) * layout.line_px
            heading_across(figure, axis, 0.01, top - 0.25 * _GROUP_GAP, heading)
        for each in own:
            names = (each.variant, each.run) if several else (each.variant,)
            labels.append(wrapped(", ".join(map(layout.label, names)), label_pt))
            height = max(_BAR, line_count(labels[-1]) * layout.line_px + _LABEL_GAP)
            _bar(axis, each, parts, top + (height - _BAR) / 2, layout)
            ticks.append(top + height / 2)
            top += height
    axis.set_yticks(ticks)
    axis.set_yticklabels(labels)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.set_ylim(top, 0)
    axis.set_xlim(0, 100)
    axis.set_xlabel("share of GPU time (%)" if layout.narrow else "share of all GPUs' measured time (%)")
    axis.grid(axis="x")
    return 55 + top


def _bar(axis: "Axes", each: GpuTimeShares, parts: Sequence[str], top: float, layout: PicturePlace) -> None:
    left = 0.0
    for part in parts:
        width = 100 * each.share(part)
        style = _STYLES[part]
        axis.barh(
            top + _BAR / 2, width, height=0.8 * _BAR, left=left, color=style.colour,
            edgecolor="white", linewidth=0.6 * layout.scale,
        )  # fmt: skip
        if style.hatch and width:
            _hatch(axis, style, left=left, width=width, top=top, layout=layout)
        left += width
    inside = each.share(TRAINING) > (0.2 if layout.narrow else 0.08)
    percent = f"{100 * each.share(TRAINING):.0f} %"
    if inside:
        axis.text(1, top + _BAR / 2, percent, color="white", va="center")
    else:
        beneath = {"facecolor": "white", "edgecolor": "none", "pad": 1.5 * layout.scale}
        axis.text(100 * each.share(TRAINING) + 1, top + _BAR / 2, percent, va="center", bbox=beneath)


def _hatch(axis: "Axes", style: Style, *, left: float, width: float, top: float, layout: PicturePlace) -> None:
    percent_px = _NARROW_PERCENT_PX if layout.narrow else _PERCENT_PX
    lines = hatched(style.hatch, width * percent_px, 0.8 * _BAR) * [1 / percent_px, 1] + [left, top + 0.1 * _BAR]
    segments(axis, lines, colour=style.hatch_colour, width=0.6 * layout.scale)


def _reading(groups: Mapping[str, Sequence[GpuTimeShares]], several: bool) -> str:
    where, last = list(groups.items())[-1]
    lines: dict[str, list[str]] = {}
    chosen = last
    if len({each.variant for each in last}) > MAX_VARIANTS_READ:
        by_training = sorted(last, key=lambda each: -each.share(TRAINING))
        named = {by_training[0].variant, by_training[-1].variant}
        chosen = [each for each in last if each.variant in named]
    for each in chosen:
        cause = max((*IDLE_CAUSES, *PROGRAM_IDLE_CAUSES), key=each.share)
        why = PART_NAMES[cause].removeprefix("idle: ")
        idle = f" and idled most, {percent_text(each.share(cause))}, {why}" if each.share(cause) and not several else ""
        filled = f", prefilled for {percent_text(each.share(PREFILL))}" if each.share(PREFILL) else ""
        lines.setdefault(each.variant, []).append(percent_text(each.share(TRAINING)) + filled + idle)
    sentences = [f"{variant} trained for {list_text(trained)}" for variant, trained in lines.items()]
    only = "the most and the least: " if len(chosen) < len(last) else ""
    order = ", in the order of the runs" if several else ""
    shown = f"{f'With {where}, of' if where else 'Of'} the time of all GPUs and repeats{order}"
    return f"{shown}: {only}{'; '.join(sentences)}."


PITCH_PX = 6.0

_DOT_PX = 1.2


def hatched(pattern: str, width_px: float, height_px: float) -> Segments:
    r"""Return the lines of one of matplotlib's patterns ``/ \\ x . | -``, clipped to a rectangle."""
    reach = np.arange(PITCH_PX / 2, width_px + height_px, PITCH_PX)
    across, down = reach[reach < width_px], reach[reach < height_px]
    if pattern == "|":
        return _segments(across, 0 * across, across, 0 * across + height_px)
    if pattern == "-":
        return _segments(0 * down, down, 0 * down + width_px, down)
    if pattern == ".":
        x, y = (grid.ravel() for grid in np.meshgrid(across, down))
        return _segments(x, y, np.minimum(x + _DOT_PX, width_px), y)
    # A rising line has x + y = reach; a falling one is its mirror image.
    low, high = np.maximum(0, reach - width_px), np.minimum(height_px, reach)
    rising = _segments(reach - low, low, reach - high, high)
    falling = rising * [1, -1] + [0, height_px]
    if pattern == "/":
        return rising
    return falling if pattern == "\\" else np.concatenate([rising, falling])


def _segments(*ends: npt.NDArray[np.float64]) -> Segments:
    return np.stack(ends, axis=1).reshape(-1, 2, 2)
