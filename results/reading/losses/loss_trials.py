"""Read the losses of a run's trials over their clock, which may be that of another run of the same training.

The k-th loss of a trial is at the end of iteration k on the joined clock. A trial is joined with the clock's trial of
the same variant at each sweep point that has all its swept values: what the clock sweeps besides must be the network's,
below ``topology``, which changes when something is learnt, and not what. A repeat is joined with the clock's repeat of
the same number, or with its only one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from wanbed.ground.shown_text import one_line
from wanbed.ground.strict_model import InputError
from wanbed.results.metrics.iterations import NS_PER_S
from wanbed.results.metrics.loss_curve import LossCurve
from wanbed.results.reading.losses.clock import Provenance, TrialClock, clock_kind, trial_clock
from wanbed.results.reading.losses.same_training import first_difference, training_fields
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import StoredTrial, swept_values
from wanbed.results.reading.summaries.headline import point_text
from wanbed.results.reading.trial_rows import rows_by_trial
from wanbed.results.records.loss_columns import HELD_OUT, TRAINING
from wanbed.results.records.trial_id import TrialId

TOPOLOGY = "topology."


class ClockError(InputError):
    """The clock of one run does not fit the losses of another. The message is one line that names both."""


@dataclass(frozen=True)
class LossTrial:
    """The losses of one trial, over one clock.

    ``id`` is the trial that learnt; ``point`` and ``values`` are the clock's sweep point. ``seed`` is the seed of the
    weights and tokens, None if the run does not record it. ``training`` has the loss of each iteration before its
    update: the mean over the replicas of the mean loss of their sequences. ``held_out`` is the mean over the replicas
    of their held-out losses, None if the trial was not evaluated.
    """

    id: TrialId
    point: int
    values: Mapping[str, str]
    seed: int | None
    training: LossCurve
    held_out: LossCurve | None
    provenance: Provenance

    def curve(self, split: str) -> LossCurve | None:
        """Return the curve of one of the splits."""
        return self.held_out if split == HELD_OUT else self.training

    @property
    def variant(self) -> str:
        """The name of its variant."""
        return self.id.variant

    @property
    def repeat(self) -> int:
        """The number of its repeat."""
        return self.id.repeat

    @property
    def where(self) -> str:
        """The swept values for readers."""
        return point_text(self.values)


def loss_trials(run: Run, clock: Run | None = None) -> list[LossTrial]:
    """Return every trial of a run that learnt, over its own clock or that of the run ``clock``.

    The order is that of the run's trials, and for each that of the clock's sweep points. Raise ClockError if ``clock``
    has no trial of the same training for one of them, or if nothing was learnt.
    """
    losses = rows_by_trial(run.losses)
    learnt = [trial for trial in run.trials if trial.id in losses]
    if clock is not None and not learnt:
        raise ClockError(f"--clock: {run.path} has no losses to time: only torch learns, give a run of it")
    found: list[LossTrial] = []
    clocks: dict[TrialId, TrialClock] = {}
    for trial in learnt:
        timed = [trial] if clock is None else _clock_trials(run, trial, clock)
        for own in timed:
            source = run if clock is None else clock
            if own.id not in clocks:
                clocks[own.id] = trial_clock(source, own)
            provenance = Provenance(clock_kind(source), "" if clock is None else clock.path.name)
            curves = _curves(run, trial, losses[trial.id], clocks[own.id], provenance)
            seed = trial.facts.get("learning_seed")
            held_out = curves.get(HELD_OUT)
            found.append(LossTrial(trial.id, own.point, own.values, seed, curves[TRAINING], held_out, provenance))
    return found


def _curves(
    run: Run, trial: StoredTrial, rows: pd.DataFrame, clock: TrialClock, provenance: Provenance
) -> dict[str, LossCurve]:
    """Return the curve of each split that the trial has; whatever learns has that of its training."""
    curves: dict[str, LossCurve] = {}
    for split in (TRAINING, HELD_OUT):
        own = rows[(rows["split"] == split).to_numpy(bool)]
        if not own.empty:
            # Without skipping NaN: of replicas of which one has diverged there is no mean.
            means = own.groupby("iteration")["loss"].agg(lambda losses: losses.mean(skipna=False)).sort_index()
            curves[split] = _curve(run, trial, means, clock, provenance)
    return curves


def _curve(
    run: Run, trial: StoredTrial, means: "pd.Series[float]", clock: TrialClock, provenance: Provenance
) -> LossCurve:
    known = means[clock.has(means.index.to_numpy(np.int64))]
    if provenance.joined and len(known) < len(means):
        raise ClockError(
            f"--clock: {run.path}: {trial.title} has losses of {len(means)} iterations, of which the clock "
            f"({provenance.clock_run}) has {len(known)}: give a clock of as many iterations"
        )
    iterations = known.index.to_numpy(np.int64)
    per_iteration = trial.settings.get("tokens_per_iteration")
    return LossCurve(
        iterations=iterations,
        loss=np.asarray(known, np.float64),
        time_s=clock.time_s(iterations),
        end_s=float(clock.end_ns[-1]) / NS_PER_S if len(clock.end_ns) else 0.0,
        tokens=None if per_iteration is None else (iterations + 1.0) * per_iteration,
        wan_bytes=clock.crossed_bytes(iterations),
    )


def _clock_trials(run: Run, trial: StoredTrial, clock: Run) -> list[StoredTrial]:
    """Return the clock's trials that time this one, one a sweep point."""
    here = f"--clock: {one_line(str(clock.path))} does not time {one_line(trial.title)} of {one_line(str(run.path))}"
    own = swept_values(run.manifest, trial.point)
    if trial.variant not in clock.variants:
        raise ClockError(f"{here}: it has no such variant, simulate the same file")
    points = dict.fromkeys(each.point for each in clock.trials if each.variant == trial.variant)
    fitting = [point for point in points if _fits(own, swept_values(clock.manifest, point))]
    if not fitting:
        raise ClockError(f"{here}: it has no sweep point of these values that differs in topology alone")
    found = []
    for point in fitting:
        fields = training_fields(run, trial.point, trial.variant), training_fields(clock, point, trial.variant)
        shared = fields[0].keys() & fields[1].keys()
        if difference := first_difference(*({name: each[name] for name in each if name in shared} for each in fields)):
            raise ClockError(f"{here}: {difference}")
        repeats = {each.repeat: each for each in clock.trials if (each.point, each.variant) == (point, trial.variant)}
        timed = repeats.get(trial.repeat) or (next(iter(repeats.values())) if len(repeats) == 1 else None)
        if timed is None:
            raise ClockError(f"{here}: it has {len(repeats)} repeats, give a clock with one, or with as many")
        found.append(timed)
    return found


def _fits(own: Mapping[str, str], clock: Mapping[str, str]) -> bool:
    same = all(clock.get(path) == value for path, value in own.items())
    return same and all(path.startswith(TOPOLOGY) for path in clock if path not in own)
