"""Make the table of what was learnt: the last loss of each variant, and what it took."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from results.metrics.losses.loss_curve import LossCurve, Numbers
from results.records.losses.loss_columns import HELD_OUT, TRAINING
from results.report.losses.loss_chart import SPLIT_NAMES, provenance_text
from results.report.losses.loss_series import LossSeries
from results.text.markdown_text import markdown_text, table_line
from results.text.number_text import amount_text, count_text, seconds_text, size_text

COLUMNS = ("sweep point", "variant", "run", "last loss", "of", "seeds", "steps", "tokens", "wall time", "WAN bytes")


@dataclass(frozen=True)
class LossTable:
    """The table as the template shows it; a column that says nothing is left out."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    reading: str

    @property
    def markdown(self) -> str:
        """The table in Markdown, after an empty line."""
        lines = [table_line(self.columns), table_line(["---"] * len(self.columns))]
        lines += [table_line([markdown_text(text) for text in row]) for row in self.rows]
        return "\n".join(["", *lines, "", self.reading, ""])


def loss_table(series: Sequence[LossSeries]) -> LossTable | None:
    """Return the table of these series, None if there is none."""
    if not series:
        return None
    rows = [_cells(each) for each in series]
    empty = {0} if not any(each.where for each in series) else set()
    empty |= {2} if len({each.run for each in series}) == 1 else set()
    kept = [number for number in range(len(COLUMNS)) if number not in empty]
    reading = (
        f"{provenance_text(series)} The last loss is the median over seeds of the loss after the last iteration, in "
        "nats; wall time is from the start of the first iteration to the end of the last."
    )
    return LossTable([COLUMNS[number] for number in kept], [[row[number] for number in kept] for row in rows], reading)


def _cells(series: LossSeries) -> list[str]:
    curves = [curve for trial in series.trials if (curve := trial.curve(series.split)) is not None]
    interval = series.final_interval
    final = series.final_loss
    loss = "diverged" if final is None else f"{final:.4f}"
    if interval is not None:
        loss += f" ({interval[0]:.4f} to {interval[1]:.4f})"
    return [
        series.where,
        series.variant,
        series.run,
        loss,
        SPLIT_NAMES[series.split],
        count_text(series.seeds, "seed") + ("" if interval is not None else ", no interval"),
        str(max(int(curve.iterations[-1]) + 1 for curve in curves)),
        amount_text(_last(curves, "tokens")),
        seconds_text(float(np.median([curve.end_s for curve in curves]))),
        size_text(_last(curves, "wan_bytes")),
    ]


def _last(curves: Sequence[LossCurve], name: str) -> float | None:
    values: list[Numbers | None] = [getattr(curve, name) for curve in curves]
    known = [float(each[-1]) for each in values if each is not None]
    return float(np.median(known)) if len(known) == len(curves) else None


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
