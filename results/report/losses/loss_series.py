"""Pool the losses of a variant's repeats: medians over seeds, and how far seeds lie apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wanbed.results.comparison.pooled_repeats import moment_intervals
from wanbed.results.metrics.bootstrap import median_interval, median_of_medians
from wanbed.results.metrics.loss_curve import Iterations, LossCurve, Numbers
from wanbed.results.reading.headline import point_text
from wanbed.results.reading.losses import LossTrial, loss_trials
from wanbed.results.reading.run import Run
from wanbed.results.records.loss_columns import HELD_OUT, TRAINING

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


def loss_series(runs: Mapping[str, Run], clocks: Sequence[Run | None] | None = None) -> list[LossSeries]:
    """Return the series of runs, which are by label, in the order of their trials and the clock's sweep points.

    ``clocks`` has the run that times the losses of each, None for its own. Raise ClockError as ``loss_trials`` does.
    """
    series: dict[tuple[str, str, frozenset[tuple[str, str]]], list[LossTrial]] = {}
    for (label, run), clock in zip(runs.items(), clocks or [None] * len(runs), strict=True):
        for trial in loss_trials(run, clock):
            series.setdefault((label, trial.variant, frozenset(trial.values.items())), []).append(trial)
    return [LossSeries(label, variant, tuple(trials)) for (label, variant, _), trials in series.items()]
