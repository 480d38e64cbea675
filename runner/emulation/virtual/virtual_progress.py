"""Report from outside, as its folder fills, how far a run in virtual time has come, by the clock of whoever waits."""

import time
from collections.abc import Callable
from typing import TextIO

from results.records.run_store import RunStore
from results.records.trial_id import TrialId
from runner.resolve.experiment import Experiment
from runner.runs.progress import Progress


class VirtualProgress:
    """Report the trials that appear in a run's folder, to ``stream`` and by ``clock`` as ``Progress`` does."""

    def __init__(
        self,
        experiment: Experiment,
        store: RunStore,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._points = {point.index: point.values for point in experiment.points()}
        trials = experiment.trials()
        self._left = [trial for trial in trials if not store.has_trial(*trial)]
        self._running: TrialId | None = None
        # A bar would be drawn over by what the guest says.
        self._progress = Progress(len(trials), len(trials) - len(self._left), stream=stream, clock=clock, plain=True)

    def look(self) -> int:
        """Report what is new since the last look, and now and then that time passes; return how full the folder is."""
        calibrated = {point for point in self._points if self._store.has_calibration(point)}
        while self._left and self._store.has_trial(*self._left[0]):
            self._begin(self._left.pop(0))
            self._running = None
            self._progress.trial_finished()
        if self._left and self._left[0].point in calibrated:
            self._begin(self._left[0])
        self._progress.refresh()
        return len(calibrated) - len(self._left)

    def _begin(self, trial: TrialId) -> None:
        if trial != self._running:
            self._running = trial
            self._progress.trial_started(self._points[trial.point], trial.variant, trial.repeat)
