"""Report the progress of a sweep, as a bar on a terminal and as plain lines elsewhere, and estimate the time left."""

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress

from wanbed.results.records.trial_id import TrialId
from wanbed.testbed.kernel.inside import in_virtual_time

Kind = tuple[str | int, ...]
"""The kind of a step, from general to particular: ``("trial", variant, sweep point)``. Equal kinds cost about alike."""

OVERRUN_SHARE = 0.25
"""A step that takes longer than expected is taken to last for another such share of what it took so far."""


PLAIN_INTERVAL_S = 5.0
"""The shortest time between two lines about trials that run beside others."""

_TRIAL, _PREPARATION = "trial", "preparation"


@dataclass(slots=True)
class _Course:
    """The course of a running trial: its ``share`` that is done, and where and when the course was first seen."""

    since_s: float
    from_share: float
    share: float = 0.0

    def whole_s(self, now_s: float) -> float:
        """Return how long the whole trial takes as fast as it has advanced so far."""
        return (now_s - self.since_s) / (self.share - self.from_share)


class Progress:
    """Report the finished trials of a run, the running trial, the elapsed time and the estimated remaining time.

    ``pending`` are the trials to run in their order, one after the other. The time before the first trial of each sweep
    point counts as its preparation. ``pending`` is empty if trials run beside each other: the estimate then uses the
    mean time between their ends. ``finished_before`` trials of an earlier, resumed run count as done, but not in the
    estimate. Output goes to ``stream`` (default: standard error). On a terminal it is a bar. Otherwise it is one line
    at each trial's start and one at the last one's end, without control characters. Use it as a context manager.
    ``clock`` returns seconds. In virtual time nothing is reported, because that clock differs from the user's: the
    process that started the guest reports.
    """

    def __init__(
        self,
        trials: int,
        finished_before: int = 0,
        *,
        pending: Sequence[TrialId] = (),
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
        self._ended: list[tuple[Kind, float]] = []
        self._ahead = _steps(pending) if pending else [(_TRIAL,)] * (trials - finished_before)
        self._started_s = clock()
        self._step_started_s = self._started_s
        self._running = False
        self._reported_s = self._started_s
        self._current = ""
        self._courses: dict[TrialId, _Course] = {}
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
        self._running = True
        if self._ahead and self._ahead[0] == (_PREPARATION,):
            self._end_step()
        if self._bar:
            self.refresh()
        else:
            self._report(self._clock())

    def trial_finished(self) -> None:
        """Count and report the running trial as finished. Its results are stored already."""
        self._running = False
        self._finished += 1
        self._end_step()
        if self._bar:
            self.refresh()
        elif self._done == self._trials:
            self._report(self._clock())

    def trial_is_at(self, trial: TrialId, share: float) -> None:
        """Report the share of a running trial that is done. Call it as often as convenient.

        Lines are printed at most every ``PLAIN_INTERVAL_S`` seconds. The estimate then goes by how fast running trials
        advance. One whose share falls has begun anew.
        """
        now_s = self._clock()
        known = self._courses.get(trial)
        if known is None or share < known.share:
            known = self._courses[trial] = _Course(now_s, share)
        known.share = share
        if self._bar:
            self.refresh()
        elif now_s - self._reported_s >= PLAIN_INTERVAL_S:
            self._report(now_s)

    def trial_ended_beside_others(self, point: Mapping[str, str], variant: str, trial: TrialId | None = None) -> None:
        """Count one of several parallel trials as finished. Its results are stored already.

        ``trial`` is what ``trial_is_at`` was called with. Lines are printed at most every ``PLAIN_INTERVAL_S`` seconds,
        and at the end of the last trial.
        """
        if trial is not None:
            self._courses.pop(trial, None)
        self._current = ", ".join([*(f"{path}={value}" for path, value in point.items()), variant])
        self._running = False
        self._finished += 1
        self._end_step()
        now_s = self._clock()
        if self._bar:
            self.refresh()
        elif now_s - self._reported_s >= PLAIN_INTERVAL_S or self._done == self._trials:
            self._report(now_s)

    def refresh(self) -> None:
        """Update the times that the bar shows. Call it as often as convenient while a trial runs."""
        if self._bar:
            done = self._done + sum(course.share for course in self._courses.values())
            self._bar.update(self._task, completed=done, description=self._line(self._clock()))

    def remaining_s(self) -> float | None:
        """Return the estimated seconds until the last trial ends, None where nothing is known to be done."""
        now_s = self._clock()
        advancing = [course for course in self._courses.values() if course.share > course.from_share]
        if advancing:
            whole_s = [course.whole_s(now_s) for course in advancing]
            left_s = [each_s * (1 - course.share) for each_s, course in zip(whole_s, advancing, strict=True)]
            waiting = self._trials - self._done - len(self._courses)
            of_all_s = sum(left_s) + waiting * sum(whole_s) / len(whole_s)
            return max(*left_s, of_all_s / len(advancing))
        return remaining_s(self._ended, self._ahead, now_s - self._step_started_s, basis=_TRIAL)

    def print_above(self, text: str) -> None:
        """Print complete lines of text above the bar, or as they are if there is none."""
        if self._bar:
            self._bar.console.print(text, end="", markup=False, highlight=False, soft_wrap=True)
        else:
            self._stream.write(text)
            self._stream.flush()

    @property
    def _done(self) -> int:
        return self._finished_before + self._finished

    def _end_step(self) -> None:
        now_s = self._clock()
        if self._ahead:
            self._ended.append((self._ahead.pop(0), now_s - self._step_started_s))
        self._step_started_s = now_s

    def _report(self, now_s: float) -> None:
        self._reported_s = now_s
        if not self._silent:
            print(self._line(now_s), file=self._stream, flush=True)

    def _line(self, now_s: float) -> str:
        parts = [f"{self._done} of {self._trials} trials done", f"{_clock_time(now_s - self._started_s)} elapsed"]
        left_s = self.remaining_s()
        if left_s is not None and self._done < self._trials:
            parts.append(f"about {_clock_time(math.ceil(left_s))} left")
        if self._current:
            parts.append(f"{'running' if self._running else 'last'}: {self._current}")
        if self._courses:
            parts.append(f"simulated: {', '.join(f'{course.share:.0%}' for course in self._courses.values())}")
        return "; ".join(parts)


def _steps(pending: Sequence[TrialId]) -> list[Kind]:
    """Return the kinds of all steps: each sweep point is prepared, then its trials run."""
    steps: list[Kind] = []
    point: int | None = None
    for trial in pending:
        if trial.point != point:
            steps.append((_PREPARATION,))
            point = trial.point
        steps.append((_TRIAL, trial.variant, trial.point))
    return steps


def _clock_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def remaining_s(
    ended: Sequence[tuple[Kind, float]], ahead: Sequence[Kind], running_s: float, *, basis: str
) -> float | None:
    """Return the estimated seconds until the steps ``ahead`` have ended; None if there is nothing to go by.

    ``ended`` has the kind and the seconds of each finished step. ``running_s`` is how long the first of ``ahead`` runs
    already. A step is expected to take the mean of those finished steps that share most of its kind. There is something
    to go by once a step of the general kind ``basis`` has ended.
    """
    if not any(kind[0] == basis for kind, _ in ended):
        return None
    expected_s = [_expected_s(ended, kind) for kind in ahead]
    if not expected_s:
        return 0.0
    return max(expected_s[0] - running_s, OVERRUN_SHARE * running_s) + sum(expected_s[1:])


def _expected_s(ended: Sequence[tuple[Kind, float]], kind: Kind) -> float:
    for shared in range(len(kind), 0, -1):
        alike_s = [seconds for other, seconds in ended if other[:shared] == kind[:shared]]
        if alike_s:
            return sum(alike_s) / len(alike_s)
    return 0.0
