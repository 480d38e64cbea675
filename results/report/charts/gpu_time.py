"""Draw the GPU time as one bar per variant and sweep point, divided into training, prefill and idle time."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.transforms import blended_transform_factory

from wanbed.results.metrics import COLLECTIVE, IDLE_CAUSES, OTHER, TRANSFER
from wanbed.results.reading.headline import point_text
from wanbed.results.records.span_log import ALL_REDUCE, PREFILL
from wanbed.results.report.charts.chart import Chart, Drawing, LegendEntry
from wanbed.results.report.charts.drawing.canvas import PicturePlace
from wanbed.results.report.charts.drawing.colours import (
    BLUE,
    GREY,
    LIGHT_ORANGE,
    LIGHT_PURPLE,
    LIGHT_SKY_BLUE,
    LIGHT_VERMILLION,
    PREFILL_COLOUR,
    Style,
)
from wanbed.results.report.charts.drawing.fitted_text import line_count, wrapped
from wanbed.results.report.charts.drawing.hatching import hatched, outline
from wanbed.results.report.gpu_time_shares import PARTS, PROGRAM_IDLE_CAUSES, TRAINING, GpuTimeShares
from wanbed.results.text import list_text, percent_text

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
    "fill_drain": "idle: pipeline fill and drain",
    COLLECTIVE: "idle: in collectives",
    TRANSFER: "idle: in sends and receives",
    OTHER: "idle: other (Python, launching, data)",
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


def gpu_time_chart(shares: Sequence[GpuTimeShares], all_points: int, salt: str) -> Chart | None:
    """Draw the bars, grouped by sweep point; None if there are none. ``all_points`` also counts points not drawn."""
    if not shares:
        return None
    runs, variants = ([*dict.fromkeys(names)] for names in ([s.run for s in shares], [s.variant for s in shares]))
    groups: dict[str, list[GpuTimeShares]] = {}
    for each in shares:
        groups.setdefault(point_text(each.values), []).append(each)
    for own in groups.values():
        own.sort(key=lambda each: (variants.index(each.variant), runs.index(each.run)))
    parts = [part for part in _DRAWN if any(each.share(part) for each in shares)]
    named = [part for part in parts if part != ALL_REDUCE or COLLECTIVE not in parts]
    legend = tuple(LegendEntry(PART_NAMES[part], _STYLES[part]) for part in named)

    def paint(figure: Figure, layout: PicturePlace) -> float:
        return _paint(figure, groups, parts, len(runs) > 1, layout)

    reading = _reading(groups, len(runs) > 1)
    if len(groups) < all_points:
        reading += f" {len(groups)} of {all_points} sweep points are drawn."
    title = "What the GPUs' time went into"
    return Chart("gpu-time", title, legend, (Drawing(f"{title}. {reading}", f"{salt}-gpu-time", paint),), reading)


def _paint(
    figure: Figure,
    groups: Mapping[str, Sequence[GpuTimeShares]],
    parts: Sequence[str],
    several: bool,
    layout: PicturePlace,
) -> float:
    axis = figure.subplots()
    width_pt = 72 * figure.get_figwidth()
    label_pt = width_pt * (NARROW_LABEL_SHARE if layout.narrow else LABEL_SHARE)
    of_figure = blended_transform_factory(figure.transFigure, axis.transData)
    top, ticks, labels = 0.0, [], []
    for own in groups.values():
        if where := point_text(own[0].values, layout.labels):
            heading = wrapped(where, 0.97 * width_pt, bold=True)
            top += _GROUP_GAP + (line_count(heading) - 1) * layout.line_px
            axis.text(
                0.01, top - 0.25 * _GROUP_GAP, heading, fontweight="bold", va="bottom", transform=of_figure,
                in_layout=False,
            )  # fmt: skip
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


def _bar(axis: Axes, each: GpuTimeShares, parts: Sequence[str], top: float, layout: PicturePlace) -> None:
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


def _hatch(axis: Axes, style: Style, *, left: float, width: float, top: float, layout: PicturePlace) -> None:
    percent_px = _NARROW_PERCENT_PX if layout.narrow else _PERCENT_PX
    lines = hatched(style.hatch, width * percent_px, 0.8 * _BAR) * [1 / percent_px, 1] + [left, top + 0.1 * _BAR]
    axis.add_patch(PathPatch(outline(lines), fill=False, edgecolor=style.hatch_colour, linewidth=0.6 * layout.scale))


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
