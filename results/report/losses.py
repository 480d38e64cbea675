"""The report's section on what was learnt: medians over seeds, and how far seeds lie apart, as curves and a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from wanbed.results.metrics.bootstrap import FEWEST_REPEATS, median_interval, median_of_medians, moment_intervals
from wanbed.results.reading.losses import Iterations, LossCurve, LossTrial, Numbers, loss_trials
from wanbed.results.reading.stored_trial import point_text
from wanbed.results.records.schema import HELD_OUT, TRAINING
from wanbed.results.report.charts.chart import (
    Chart,
    Drawing,
    Painter,
    PicturePlace,
    panel_title,
    panel_width_pt,
    panels,
    series_legend,
    series_names,
)
from wanbed.results.report.charts.colours import Styles, lightened
from wanbed.results.report.charts.letters import wrapped
from wanbed.results.report.reported_runs import ReportedRun, ReportedRuns
from wanbed.results.report.section import Section
from wanbed.results.report.table import Column, Table, place_columns
from wanbed.results.text import amount_text, count_text, list_text, seconds_text, size_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXES = ("iterations", "tokens", "time_s", "wan_bytes")
"""The quantities that a loss is drawn against: fields of ``LossCurve``."""


@dataclass(frozen=True, eq=False)
class PooledCurve:
    """The medians over seeds of losses that all of them have, and of what they are drawn against.

    ``x`` has each of ``AXES`` that is known of every seed. ``band`` are the 95 % intervals of the median over seeds; of
    two seeds, too few for one, the two themselves; None of one.
    """

    iterations: Iterations
    loss: Numbers
    x: Mapping[str, Numbers]
    band: tuple[Numbers, Numbers] | None


@dataclass(frozen=True)
class LossSeries:
    """The losses of all repeats of one variant of one run, at one sweep point of the clock."""

    run: str
    variant: str
    trials: tuple[LossTrial, ...]

    @property
    def values(self) -> Mapping[str, str]:
        """The swept values of the clock's sweep point."""
        return self.trials[0].values

    @property
    def where(self) -> str:
        """The swept values for readers."""
        return point_text(self.values)

    @property
    def provenance(self) -> str:
        """The sources of losses and clock, for readers."""
        return self.trials[0].provenance.text

    @property
    def split(self) -> str:
        """The split that counts: the held-out one if every trial was evaluated."""
        return HELD_OUT if all(trial.held_out is not None for trial in self.trials) else TRAINING

    @property
    def seeds(self) -> int:
        """The number of different seeds."""
        return len({trial.seed for trial in self.trials})

    @cached_property
    def final_losses(self) -> tuple[tuple[float, ...], ...]:
        """The last loss of every trial that is a number, by seed."""
        found: dict[int | None, list[float]] = {trial.seed: [] for trial in self.trials}
        for trial in self.trials:
            curve = trial.curve(self.split)
            if curve is not None and len(curve.loss) and np.isfinite(curve.loss[-1]):
                found[trial.seed].append(float(curve.loss[-1]))
        return tuple(map(tuple, found.values()))

    @property
    def final_loss(self) -> float | None:
        """The median over seeds of the last loss; None where a training diverged."""
        return median_of_medians(self.final_losses) if all(self.final_losses) else None

    @property
    def final_interval(self) -> tuple[float, float] | None:
        """The 95 % interval of that median over seeds; None of too few."""
        return median_interval(self.final_losses) if all(self.final_losses) else None

    @property
    def end_s(self) -> float:
        """The end of the training that ended first, in seconds."""
        return min(trial.training.end_s for trial in self.trials)

    def loss_at(self, time_s: float) -> float | None:
        """Return the median over seeds of the loss at that time; None if a trial has none."""
        found: dict[int | None, list[float]] = {}
        for trial in self.trials:
            curve = trial.curve(self.split)
            loss = None if curve is None else curve.loss_at(time_s)
            if loss is None:
                return None
            found.setdefault(trial.seed, []).append(loss)
        return median_of_medians(list(found.values()))

    def pooled(self, split: str) -> PooledCurve | None:
        """Return the curve of a split over all seeds; None if a trial has none, or they share no iteration."""
        by_seed: dict[int | None, list[LossCurve]] = {}
        for trial in self.trials:
            curve = trial.curve(split)
            if curve is None:
                return None
            by_seed.setdefault(trial.seed, []).append(curve)
        curves = [curve for own in by_seed.values() for curve in own]
        shared = curves[0].iterations
        for curve in curves[1:]:
            shared = np.intersect1d(shared, curve.iterations)
        if not len(shared):
            return None

        def medians(name: str) -> Numbers:
            """Return a row for each seed: the median over its repeats."""
            rows = [
                np.median(
                    [np.asarray(getattr(curve, name), float)[np.isin(curve.iterations, shared)] for curve in own], 0
                )
                for own in by_seed.values()
            ]
            return np.array(rows)

        losses = medians("loss")
        known = [name for name in AXES if all(getattr(curve, name) is not None for curve in curves)]
        band = moment_intervals(losses)
        if band is None and len(losses) > 1:
            band = losses.min(axis=0), losses.max(axis=0)
        return PooledCurve(
            shared, np.median(losses, axis=0), {name: np.median(medians(name), axis=0) for name in known}, band
        )


def loss_series(own: ReportedRun) -> list[LossSeries]:
    """Return the series of a run, in the order of its trials and the clock's sweep points.

    Raise ClockError as ``loss_trials`` does.
    """
    series: dict[tuple[str, frozenset[tuple[str, str]]], list[LossTrial]] = {}
    for trial in loss_trials(own.run, own.clock):
        series.setdefault((trial.variant, frozenset(trial.values.items())), []).append(trial)
    return [LossSeries(own.label, variant, tuple(trials)) for (variant, _), trials in series.items()]


MAX_POINTS = 4
"""The most sweep points that are drawn, each as a picture of its own."""

_SPLIT_NAMES = {HELD_OUT: "held-out loss", TRAINING: "training loss"}

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


def loss_chart(reported: ReportedRuns, styles: Styles) -> Chart | None:
    """Draw every series, a picture for each sweep point, a panel for each axis that is known; None if there is none."""
    series = reported.rows(loss_series)
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
            f"all-loss-{number}",
            _painter(own, styles, where),
            name=where,
        )
        for number, (where, own) in enumerate(shown)
    )
    return Chart("loss", title, series_legend(styles, *series_names(series)), drawings, reading, frozenset("xy"))


def _counted_split(series: Sequence[LossSeries]) -> str:
    """Return the split that is compared: the held-out one if all series have it."""
    return HELD_OUT if all(each.split == HELD_OUT for each in series) else TRAINING


def _painter(series: Sequence[LossSeries], styles: Styles, where: str) -> Painter:
    split = _counted_split(series)
    curves = [(each, curve) for each in series if (curve := each.pooled(split)) is not None]
    faint = [(each, each.pooled(TRAINING) if split == HELD_OUT else None) for each, _ in curves]
    drawn = [name for name in AXES if any(name in curve.x for _, curve in curves)]

    def paint(figure: "Figure", layout: PicturePlace) -> float:
        columns = 1 if layout.narrow else 2
        axes, rows = panels(figure, len(drawn), columns, sharey=True)
        width_pt = panel_width_pt(figure, columns)
        further = panel_title(axes[0], where, width_pt) if where else 0
        for position, (axis, name) in enumerate(zip(axes, drawn, strict=True)):
            for each, curve in faint:
                if curve is not None and name in curve.x:
                    _draw_faint(axis, each, curve, name, styles=styles, layout=layout)
            for each, curve in curves:
                if name in curve.x:
                    _draw(axis, each, curve, name, styles=styles, layout=layout)
            axis.set_xlim(left=0)
            axis.grid()
            axis.set_xlabel(wrapped(_axis_name(name, series), width_pt))
            axis.set_ylabel(f"{_SPLIT_NAMES[split]} (nats)" if position % columns == 0 else "")
        return rows * (240 if layout.narrow else 290) + further * layout.line_px

    return paint


def _x(curve: PooledCurve, name: str) -> Numbers:
    """Return what is on an axis, in its unit; iterations are counted from 1, as that many have been done."""
    return curve.x[name] * _SCALES.get(name, 1.0) + (1 if name == "iterations" else 0)


def _draw_faint(
    axis: "Axes", series: LossSeries, curve: PooledCurve, name: str, *, styles: Styles, layout: PicturePlace
) -> None:
    """Draw training losses beneath: those of single iterations differ by chance, and only show the course."""
    colour = lightened(styles.of_series(series.variant, series.run).colour)
    axis.plot(_x(curve, name), curve.loss, color=colour, linewidth=0.8 * layout.scale, zorder=1)


def _draw(
    axis: "Axes", series: LossSeries, curve: PooledCurve, name: str, *, styles: Styles, layout: PicturePlace
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


def _provenance_text(series: Sequence[LossSeries]) -> str:
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
    split = _SPLIT_NAMES[_counted_split(last)]
    end_s = min(each.end_s for each in last)
    several = len({each.run for each in last}) > 1
    texts = [
        f"{loss:.3f} with {each.variant}{f' in {each.run}' if several else ''}"
        for each in last[:_MAX_READ]
        if (loss := each.loss_at(end_s)) is not None
    ]
    where = f"With {last[0].where}, a" if last[0].where else "A"
    found = f"{where}fter {seconds_text(end_s)}, when the first training ended, the {split} was {list_text(texts)}. "
    return (found if texts else "") + f"{_provenance_text(series)} {_bands_reading(series)}"


def _bands_reading(series: Sequence[LossSeries]) -> str:
    seeds = {each.seeds for each in series}
    texts = ["Lines are medians over seeds." if max(seeds) > 1 else "Every variant has one seed: there is no band."]
    if max(seeds) >= FEWEST_REPEATS:
        texts.append("Bands are the 95 % intervals of the median, by the bootstrap over seeds.")
    if 2 in seeds:
        texts.append("Of two seeds the band lies between them.")
    if _counted_split(series) == HELD_OUT:
        texts.append("Thin lines are training losses.")
    return " ".join(texts)


def clock_warning(reported: ReportedRuns) -> str:
    """Return what a reader must know of clocks of other runs, "" if there are none: no training took these times."""
    clocks = dict.fromkeys(
        f"{trial.provenance.clock_run} ({trial.provenance.clock})"
        for each in reported.rows(loss_series)
        for trial in each.trials
        if trial.provenance.joined
    )
    if not clocks:
        return ""
    return (
        f"The losses were measured, and their clock is that of another run of the same training: {', '.join(clocks)}. "
        "Wall times and WAN bytes in this section are that run's; all else on the page is of the run that learnt."
    )


def loss_table(reported: ReportedRuns) -> Table | None:
    """Return the table of what was learnt, None if nothing was."""
    series = reported.rows(loss_series)
    if not series:
        return None
    reading = (
        f"{_provenance_text(series)} The last loss is the median over seeds of the loss after the last iteration, in "
        "nats; wall time is from the start of the first iteration to the end of the last."
    )
    several = len({each.run for each in series}) > 1
    columns = [column for column in _COLUMNS if several or column is not _RUN]
    return Table.of("losses", "Losses", series, columns, reading)


def _loss_text(series: LossSeries) -> str:
    final, interval = series.final_loss, series.final_interval
    within = "" if interval is None else f" ({interval[0]:.4f} to {interval[1]:.4f})"
    return f"{'diverged' if final is None else f'{final:.4f}'}{within}"


def _seeds_text(series: LossSeries) -> str:
    return count_text(series.seeds, "seed") + ("" if series.final_interval is not None else ", no interval")


def _curves(series: LossSeries) -> list[LossCurve]:
    return [curve for trial in series.trials if (curve := trial.curve(series.split)) is not None]


def _last(curves: Sequence[LossCurve], name: str) -> float | None:
    values: list[Numbers | None] = [getattr(curve, name) for curve in curves]
    known = [float(each[-1]) for each in values if each is not None]
    return float(np.median(known)) if len(known) == len(curves) else None


_RUN: Column[LossSeries] = Column("run", lambda each: each.run)

_COLUMNS: tuple[Column[LossSeries], ...] = (
    *place_columns(),
    _RUN,
    Column("last loss", _loss_text),
    Column("of", lambda each: _SPLIT_NAMES[each.split]),
    Column("seeds", _seeds_text),
    Column("steps", lambda each: str(max(int(curve.iterations[-1]) + 1 for curve in _curves(each)))),
    Column("tokens", lambda each: amount_text(_last(_curves(each), "tokens"))),
    Column("wall time", lambda each: seconds_text(float(np.median([curve.end_s for curve in _curves(each)])))),
    Column("WAN bytes", lambda each: size_text(_last(_curves(each), "wan_bytes"))),
)


def final_figures(series: LossSeries | None) -> dict[str, Any]:
    """Return the columns that a series adds to its row of the main table in CSV and JSON; None for no series."""
    low, high = (None, None) if series is None or series.final_interval is None else series.final_interval
    return {
        "final_loss": None if series is None else series.final_loss,
        "final_loss_low": low,
        "final_loss_high": high,
        "final_loss_split": None if series is None else series.split,
        "final_loss_seeds": None if series is None else series.seeds,
    }


def loss_records(series: Sequence[LossSeries]) -> list[dict[str, Any]]:
    """Return a record for each curve of each trial, fit for JSON: what is not known or not a number is None.

    ``loss_provenance`` is always measured, ``clock_provenance`` measured, virtual or simulated, and ``clock_run`` the
    run of the clock, None where it is that of the losses.
    """
    records = []
    for each in series:
        for trial in each.trials:
            for split in (TRAINING, HELD_OUT):
                curve = trial.curve(split)
                if curve is None:
                    continue
                records.append(
                    {
                        "run": each.run,
                        "swept": dict(trial.values),
                        "variant": trial.variant,
                        "repeat": trial.repeat,
                        "seed": trial.seed,
                        "split": split,
                        "loss_provenance": "measured",
                        "clock_provenance": trial.provenance.clock,
                        "clock_run": trial.provenance.clock_run or None,
                        **_columns(curve),
                    }
                )
    return records


def _columns(curve: LossCurve) -> Mapping[str, list[Any] | None]:
    def plain(values: Numbers | None) -> list[float | None] | None:
        return None if values is None else [float(each) if isfinite(each) else None for each in values]

    return {
        "iteration": curve.iterations.tolist(),
        "loss": plain(curve.loss),
        "time_s": plain(curve.time_s),
        "tokens": plain(curve.tokens),
        "wan_bytes": plain(curve.wan_bytes),
    }


LOSSES_SECTION = Section("Losses", (loss_table,), (loss_chart,), warning=clock_warning)
