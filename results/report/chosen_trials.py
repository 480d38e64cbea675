"""Choose the sweep points and variants of runs that figures show."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from wanbed.results.reading.run import Run
from wanbed.results.reading.selection import NoSuchTrialError, Selection, swept_points


def chosen_trials(runs: Mapping[str, Run], points: Sequence[str], variants: Sequence[str]) -> dict[str, Run]:
    """Return the runs that have such trials, each with these alone; everything if nothing is chosen.

    Raise NoSuchTrialError if a point or a variant is in no run.
    """
    if not points and not variants:
        return dict(runs)
    chosen: dict[str, set[int]] = {}
    for variant in dict.fromkeys(variants) or [None]:
        fault: NoSuchTrialError | None = None
        found = False
        for label, run in runs.items():
            position = {trial.id: number for number, trial in enumerate(run.trials)}
            try:
                trials = Selection(points, variant).of(run.trials, swept_points(run.manifest))
            except NoSuchTrialError as absent:
                fault = fault or absent
                continue
            found = True
            chosen.setdefault(label, set()).update(position[trial.id] for trial in trials)
        if fault is not None and not found:
            raise fault
    return {label: _with_trials(runs[label], sorted(chosen[label])) for label in runs if label in chosen}


def _with_trials(run: Run, positions: Sequence[int]) -> Run:
    return replace(
        run,
        trials=tuple(run.trials[position] for position in positions),
        summary=run.summary.iloc[list(positions)].reset_index(drop=True),
    )
