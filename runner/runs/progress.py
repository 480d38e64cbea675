"""Report the progress of a sweep: a progress bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress

from testbed.kernel.inside import in_virtual_time

PLAIN_INTERVAL_S = 5.0


class Progress:
    """Report the finished trials of a run, the running trial, the elapsed time and the estimated remaining time.

    ``finished_before`` trials of an earlier, resumed run count as done but not in the estimate, which uses the mean
    time of the trials finished since. Output goes to ``stream`` (default: standard error). On a terminal it is a bar,
    unless ``plain``. Otherwise it is one line at each trial's end and, from ``refresh``, at most one line every
    ``PLAIN_INTERVAL_S`` seconds. Use it as a context manager. ``clock`` returns seconds. In virtual time nothing is
    reported, because that clock differs from the user's: the process that started the guest reports.
    """

    def __init__(
        self,
        trials: int,
        finished_before: int = 0,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        plain: bool = False,
    ) -> None:
        self._stream = stream or sys.stderr
        self._silent = in_virtual_time()
        self._clock = clock
        self._trials = trials
        self._finished_before = finished_before
        self._finished = 0
        self._started_s = clock()
        self._trial_started_s: float | None = None
        self._in_trials_s = 0.0
        self._reported_s = self._started_s
        self._current = ""
        self._bar: RichProgress | None = None
        if self._stream.isatty() and not plain and not self._silent:
            # Names come from users. Parsed as markup, they would lose parts such as "[x]".
            columns = (BarColumn(bar_width=24), TextColumn("{task.description}", markup=False))
            self._bar = RichProgress(*columns, console=Console(file=self._stream), transient=True)
            self._task = self._bar.add_task("", total=trials, completed=finished_before)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def trial_started(self, point: Mapping[str, str], variant: str, repeat: int) -> None:
        """Report that a trial starts. ``repeat`` counts from 0."""
        values = [f"{path}={value}" for path, value in point.items()]
        self._current = ", ".join([*values, variant, f"repeat {repeat}"])
        self._trial_started_s = self._clock()
        self.refresh()

    def trial_finished(self) -> None:
        """Count and report the running trial as finished. Its results are stored already."""
        now_s = self._clock()
        if self._trial_started_s is not None:
            self._in_trials_s += now_s - self._trial_started_s
        self._trial_started_s = None
        self._finished += 1
        if self._bar:
            self.refresh()
        else:
            self._report(now_s)

    def trial_ended_beside_others(self, point: Mapping[str, str], variant: str) -> None:
        """Count one of several parallel trials as finished. Its results are stored already.

        The estimate then uses the time since the start of this run. Lines are printed at the rate of ``refresh``, and
        at the end of the last trial.
        """
        self._current = ", ".join([*(f"{path}={value}" for path, value in point.items()), variant])
        self._in_trials_s = self._clock() - self._started_s
        self._trial_started_s = None
        self._finished += 1
        if self._bar or self._done < self._trials:
            self.refresh()
        else:
            self._report(self._clock())

    def refresh(self) -> None:
        """Update the displayed times. Call it as often as convenient while a trial runs."""
        now_s = self._clock()
        if self._bar:
            self._bar.update(self._task, completed=self._done, description=self._line(now_s))
        elif now_s - self._reported_s >= PLAIN_INTERVAL_S:
            self._report(now_s)

    def remaining_s(self) -> float | None:
        """Return the estimated seconds until the last trial ends, None before the first one has ended."""
        if self._finished == 0:
            return None
        mean_s = self._in_trials_s / self._finished
        running_s = 0.0 if self._trial_started_s is None else self._clock() - self._trial_started_s
        return max(0.0, (self._trials - self._done) * mean_s - running_s)

    @property
    def _done(self) -> int:
        return self._finished_before + self._finished

    def _report(self, now_s: float) -> None:
        self._reported_s = now_s
        if not self._silent:
            print(self._line(now_s), file=self._stream, flush=True)

    def _line(self, now_s: float) -> str:
        parts = [f"{self._done} of {self._trials} trials done", f"{_clock_time(now_s - self._started_s)} elapsed"]
        remaining_s = self.remaining_s()
        if remaining_s is not None and self._done < self._trials:
            parts.append(f"about {_clock_time(remaining_s)} left")
        verb = "running" if self._trial_started_s is not None else "last"
        return "; ".join(parts) + (f"; {verb}: {self._current}" if self._current else "")


def _clock_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
