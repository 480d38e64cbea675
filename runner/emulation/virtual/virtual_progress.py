"""Report from outside, as its folder fills, how far a run in virtual time has come, by the clock of whoever waits."""

import io
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TextIO

from wanbed.results.records.run_store import RunStore
from wanbed.results.records.trial_id import TrialId
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.progress import Progress


class VirtualProgress:
    """Report the trials that appear in a run's folder, to ``stream`` and by ``clock`` as ``Progress`` does.

    Use it as a context manager. ``standard_error`` takes what the guest prints meanwhile.
    """

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
        finished = len(trials) - len(self._left)
        self._progress = Progress(len(trials), finished, pending=self._left, stream=stream, clock=clock)
        self.standard_error = _LinesAbove(self._progress)

    def __enter__(self) -> Self:
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.standard_error.close()
        self._progress.__exit__(kind, fault, trace)

    def look(self) -> int:
        """Report what is new since the last look, and that time passes; return how full the folder is."""
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


class _LinesAbove(io.BytesIO):
    """A stream that prints whole lines above a progress bar, and what is left when it is closed."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress
        self._held = b""

    def write(self, data: Any, /) -> int:
        """Print the lines that are complete now."""
        added = bytes(data)
        lines, newline, self._held = (self._held + added).rpartition(b"\n")
        if newline:
            self._progress.print_above((lines + newline).decode(errors="replace"))
        return len(added)

    def close(self) -> None:
        """Print what is left."""
        if self._held:
            self._progress.print_above(self._held.decode(errors="replace"))
            self._held = b""
        super().close()
