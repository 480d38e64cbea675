"""Draw losses against steps, tokens, wall time and WAN bytes, with a band that shows how far seeds lie apart."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wanbed.results.metrics.bootstrap import FEWEST_REPEATS
from wanbed.results.metrics.loss_curve import Numbers
from wanbed.results.records.loss_columns import HELD_OUT, TRAINING
from wanbed.results.report.charts.chart import Chart, Drawing, Painter, series_legend
from wanbed.results.report.charts.drawing.canvas import PicturePlace
from wanbed.results.report.charts.drawing.colours import Styles, lightened
from wanbed.results.report.charts.drawing.fitted_text import wrapped
from wanbed.results.report.charts.drawing.panels import panel_title, panel_width_pt
from wanbed.results.report.losses.loss_series import AXES, LossSeries, PooledCurve
from wanbed.results.text import list_text, seconds_text

MAX_POINTS = 4
"""The most sweep points that are drawn, each as a picture of its own."""
SPLIT_NAMES = {HELD_OUT: "held-out loss", TRAINING: "training loss"}

_AXIS_NAMES = {
    "iterations": "steps (iterations)",
    "tokens": "tokens",
    "time_s": "wall time (s)",
    "wan_bytes": "sent over the WAN (MB)",
}
_SCALES = {"wan_bytes": 1e-6}
_OF_A_CLOCK = ("time_s", "wan_bytes")
_CLOCK_MARKS = {"simulated": "simulated", "virtual": "virtual time", "measured": "of another run"}
_MAX_READ = 4


def loss_chart(series: Sequence[LossSeries], styles: Styles, salt: str) -> Chart | None:
    """Draw every series, a picture for each sweep point, a panel for each axis that is known; None if there is none."""
    if not series:
        return None
    points: dict[str, list[LossSeries]] = {}
    for each in series:
        points.setdefault(each.where, []).append(each)
    # Of many the first and the last, and some between.
    chosen = np.unique(np.linspace(0, len(points) - 1, min(len(points), MAX_POINTS)).round().astype(int))
    shown = [list(points.items())[number] for number in chosen]
    reading = _reading(series, shown[-1][1])
    if len(shown) < len(points):
        reading += f" {len(shown)} of {len(points)} sweep points are drawn; the table has all."
    title = "What was learnt"
    drawings = tuple(
        Drawing(
            f"{title}{f', at {where}' if where else ''}. {reading}",
            f"{salt}-loss-{number}",
            _painter(own, styles, where),
            name=where,
        )
        for number, (where, own) in enumerate(shown)
    )
    variants, runs = (dict.fromkeys(getattr(each, name) for each in series) for name in ("variant", "run"))
    return Chart("loss", title, series_legend(styles, variants, runs), drawings, reading, frozenset("xy"))


def counted_split(series: Sequence[LossSeries]) -> str:
    """Return the split that is compared: the held-out one if all series have it."""
    return HELD_OUT if all(each.split == HELD_OUT for each in series) else TRAINING


def _painter(series: Sequence[LossSeries], styles: Styles, where: str) -> Painter:
    split = counted_split(series)
    curves = [(each, curve) for each in series if (curve := each.pooled(split)) is not None]
    faint = [(each, each.pooled(TRAINING) if split == HELD_OUT else None) for each, _ in curves]
    drawn = [name for name in AXES if any(name in curve.x for _, curve in curves)]

    def paint(figure: Figure, layout: PicturePlace) -> float:
        columns = 1 if layout.narrow else 2
        rows = -(-len(drawn) // columns)
        axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
        width_pt = panel_width_pt(figure, columns)
        further = panel_title(axes.flat[0], where, width_pt) if where else 0
        for position, name in enumerate(drawn):
            axis = axes.flat[position]
            for each, curve in faint:
                if curve is not None and name in curve.x:
                    _draw_faint(axis, each, curve, name, styles=styles, layout=layout)
            for each, curve in curves:
                if name in curve.x:
                    _draw(axis, each, curve, name, styles=styles, layout=layout)
            axis.set_xlim(left=0)
            axis.grid()
            axis.set_xlabel(wrapped(_axis_name(name, series), width_pt))
            axis.set_ylabel(f"{SPLIT_NAMES[split]} (nats)" if position % columns == 0 else "")
        for unused in axes.flat[len(drawn) :]:
            unused.set_visible(False)
        return rows * (240 if layout.narrow else 290) + further * layout.line_px

    return paint


def _x(curve: PooledCurve, name: str) -> Numbers:
    """Return what is on an axis, in its unit; iterations are counted from 1, as that many have been done."""
    return curve.x[name] * _SCALES.get(name, 1.0) + (1 if name == "iterations" else 0)


def _draw_faint(
    axis: Axes, series: LossSeries, curve: PooledCurve, name: str, *, styles: Styles, layout: PicturePlace
) -> None:
    """Draw training losses beneath: those of single iterations differ by chance, and only show the course."""
    colour = lightened(styles.of_series(series.variant, series.run).colour)
    axis.plot(_x(curve, name), curve.loss, color=colour, linewidth=0.8 * layout.scale, zorder=1)


def _draw(
    axis: Axes, series: LossSeries, curve: PooledCurve, name: str, *, styles: Styles, layout: PicturePlace
) -> None:
    style = styles.of_series(series.variant, series.run)
    x = _x(curve, name)
    if curve.band is not None:
        axis.fill_between(
            x, *curve.band, facecolor=lightened(style.colour), edgecolor=style.colour, alpha=0.5,
            linewidth=0.5 * layout.scale, zorder=2,
        )  # fmt: skip
    axis.plot(
        x, curve.loss, color=style.colour, linestyle=style.line or "-", linewidth=2 * layout.scale,
        marker=style.marker, markersize=5 * layout.scale, markevery=max(1, len(x) // 12),
        markerfacecolor=style.colour if style.filled else "white", zorder=3,
    )  # fmt: skip


def _axis_name(name: str, series: Sequence[LossSeries]) -> str:
    """Return the text of an axis, with the kind of a clock that is not the losses' own."""
    marks = {
        _CLOCK_MARKS[trial.provenance.clock] for each in series for trial in each.trials if trial.provenance.joined
    }
    if name not in _OF_A_CLOCK or not marks:
        return _AXIS_NAMES[name]
    return f"{_AXIS_NAMES[name]}, clock {' and '.join(sorted(marks))}"


def provenance_text(series: Sequence[LossSeries]) -> str:
    """Return where losses and clocks come from, in a sentence; by run if runs differ."""
    of_runs: dict[str, list[str]] = {}
    for each in series:
        texts = of_runs.setdefault(each.run, [])
        if each.provenance not in texts:
            texts.append(each.provenance)
    different = list(dict.fromkeys(list_text(texts) for texts in of_runs.values()))
    if len(different) == 1:
        return f"{different[0][0].upper()}{different[0][1:]}."
    return " ".join(f"{run}: {list_text(texts)}." for run, texts in of_runs.items())


def _reading(series: Sequence[LossSeries], last: Sequence[LossSeries]) -> str:
    split = SPLIT_NAMES[counted_split(last)]
    end_s = min(each.end_s for each in last)
    several = len({each.run for each in last}) > 1
    texts = [
        f"{loss:.3f} with {each.variant}{f' in {each.run}' if several else ''}"
        for each in last[:_MAX_READ]
        if (loss := each.loss_at(end_s)) is not None
    ]
    where = f"With {last[0].where}, a" if last[0].where else "A"
    found = f"{where}fter {seconds_text(end_s)}, when the first training ended, the {split} was {list_text(texts)}. "
    return (found if texts else "") + f"{provenance_text(series)} {_bands_reading(series)}"


def _bands_reading(series: Sequence[LossSeries]) -> str:
    seeds = {each.seeds for each in series}
    texts = ["Lines are medians over seeds." if max(seeds) > 1 else "Every variant has one seed: there is no band."]
    if max(seeds) >= FEWEST_REPEATS:
        texts.append("Bands are the 95 % intervals of the median, by the bootstrap over seeds.")
    if 2 in seeds:
        texts.append("Of two seeds the band lies between them.")
    if counted_split(series) == HELD_OUT:
        texts.append("Thin lines are training losses.")
    return " ".join(texts)
