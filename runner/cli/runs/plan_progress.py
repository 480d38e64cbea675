"""Report the progress of ``wanbed plan``: a line that changes on a terminal, a line every few seconds elsewhere."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.text import Text

from wanbed.results.text.number_text import count_text, list_text, seconds_text
from wanbed.runner.planner.effort import Effort
from wanbed.runner.runs.progress import PLAIN_INTERVAL_S


class PlanProgress:
    """Report how far a search is: what it has simulated, the best so far, and the time of how much.

    Output goes to ``stream`` (default: standard error). Use it as a context manager. ``clock`` returns seconds.
    """

    def __init__(self, *, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._reported_s = clock()
        self._status = Console(file=self._stream).status("planning") if self._stream.isatty() else None

    def __enter__(self) -> Self:
        if self._status:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status:
            self._status.stop()

    def report(self, effort: Effort) -> None:
        """Show how far the search is. Call it as often as convenient."""
        if self._status:
            # Names come from users. Parsed as markup, they would lose parts such as "[x]".
            self._status.update(Text(progress_line(effort)))
        elif self._clock() - self._reported_s >= PLAIN_INTERVAL_S:
            self._reported_s = self._clock()
            print(f"wanbed: {progress_line(effort)}", file=self._stream, flush=True)


def progress_line(effort: Effort) -> str:
    """Return the state of a search as one line."""
    limit_s = effort.limits.time_s
    simulated = count_text(effort.priced, "candidate")
    if effort.candidates is not None:
        simulated = f"{effort.priced} of {count_text(effort.candidates, 'candidate')}"
    most = effort.limits.simulations
    parts = [
        f"{_clock_time(effort.elapsed_s)}{'' if limit_s is None else f' of {_clock_time(limit_s)}'}",
        f"{simulated} simulated{'' if most is None else f', at most {most}'}",
    ]
    if effort.simulated is not None:
        parts.append(f"the next is at {round(100 * effort.simulated)} %")
    elif effort.examined:
        parts.append(f"{effort.examined:,} partial placements examined")
    if effort.best is not None:
        candidate, price = effort.best.candidate, effort.best.price
        gpus = count_text(candidate.gpus, "GPU")
        parts.append(
            f"best so far: {seconds_text(price.iteration_time_s)} an iteration on {gpus} in "
            f"{list_text(list(candidate.datacenters))}"
        )
    return "; ".join(parts)


def _clock_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
