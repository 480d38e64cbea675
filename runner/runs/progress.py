"""Report how far a sweep has come: a bar on a terminal, a plain line now and then anywhere else."""

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
    """Report how many of a run's trials are done, which one is running, the time taken and an estimate of the rest.

    ``finished_before`` trials, left by an earlier run that is being continued, count as done and not in the estimate,
    which is the mean time of the trials finished since. Everything goes to ``stream``, standard error unless given: on
    a terminal as a bar, unless ``plain``, otherwise as one line at each trial's end and, from ``refresh``, at most
    every ``PLAIN_INTERVAL_S`` seconds. Use it as a context manager; ``clock`` counts seconds. In virtual time nothing
    is reported, since nobody waits by that clock: whoever has started the guest reports.
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
        self._told_s = self._started_s
        self._current = ""
        self._bar: RichProgress | None = None
        if self._stream.isatty() and not plain and not self._silent:
            # Names come from users: read as markup, "[x]" would vanish from them.
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
        """Report the trial that runs from now on; ``repeat`` counts from 0."""
        values = [f"{path}={value}" for path, value in point.items()]
        self._current = ", ".join([*values, variant, f"repeat {repeat}"])
        self._trial_started_s = self._clock()
        self.refresh()

    def trial_finished(self) -> None:
        """Count the trial that was started last, which has ended and is kept, and report it."""
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
        """Count one of several trials that run side by side, which has ended and is kept.

        The estimate is then from the time since this run's start. Lines are printed as seldom as from ``refresh``, and
        at the last trial's end.
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
        """Show the time as it is now; call it as often as convenient while a trial runs."""
        now_s = self._clock()
        if self._bar:
            self._bar.update(self._task, completed=self._done, description=self._line(now_s))
        elif now_s - self._told_s >= PLAIN_INTERVAL_S:
            self._report(now_s)

    def remaining_s(self) -> float | None:
        """Return the estimated seconds until the last trial ends; None before the first one has."""
        if self._finished == 0:
            return None
        mean_s = self._in_trials_s / self._finished
        running_s = 0.0 if self._trial_started_s is None else self._clock() - self._trial_started_s
        return max(0.0, (self._trials - self._done) * mean_s - running_s)

    @property
    def _done(self) -> int:
        return self._finished_before + self._finished

    def _report(self, now_s: float) -> None:
        self._told_s = now_s
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
