"""The section on losses: the last loss of each variant and what it took, and the curves."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from wanbed.results.metrics.loss_curve import LossCurve, Numbers
from wanbed.results.records.loss_columns import HELD_OUT, TRAINING
from wanbed.results.report.charts.chart import Chart
from wanbed.results.report.losses.loss_chart import SPLIT_NAMES, provenance_text
from wanbed.results.report.losses.loss_series import LossSeries
from wanbed.results.report.section import Section
from wanbed.results.report.table import Column, Table
from wanbed.results.text import amount_text, count_text, seconds_text, size_text


def loss_section(series: Sequence[LossSeries], charts: Sequence[Chart]) -> Section:
    """Return the section with its charts. It warns of clocks that are not the losses' own."""
    return Section("Losses", [loss_table(series), *charts], _joined_warning(series))


def _joined_warning(series: Sequence[LossSeries]) -> str:
    """Return what a reader must know of clocks of other runs, "" if there are none: no training took these times."""
    clocks = dict.fromkeys(
        f"{trial.provenance.clock_run} ({trial.provenance.clock})"
        for each in series
        for trial in each.trials
        if trial.provenance.joined
    )
    if not clocks:
        return ""
    return (
        f"The losses were measured, and their clock is that of another run of the same training: {', '.join(clocks)}. "
        "Wall times and WAN bytes in this section are that run's; all else on the page is of the run that learnt."
    )


def loss_table(series: Sequence[LossSeries]) -> Table | None:
    """Return the table of these series, None if there is none."""
    if not series:
        return None
    reading = (
        f"{provenance_text(series)} The last loss is the median over seeds of the loss after the last iteration, in "
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
    Column("sweep point", lambda each: each.where),
    Column("variant", lambda each: each.variant),
    _RUN,
    Column("last loss", _loss_text),
    Column("of", lambda each: SPLIT_NAMES[each.split]),
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
