"""A loss over the course of a training, and the figures that are read from it.

With t(k) the time from the start of the first iteration to the end of iteration k, and l(k) its loss:

    loss at T    = l(k) of the last k with t(k) <= T
    time to L    = t(k) of the first k with l(k) <= L

Both are steps: nothing is interpolated, so that an evaluation every N iterations finds a loss up to N iterations late,
for all that are compared alike.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Iterations = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LossCurve:
    """The losses of one trial: entry i is that after iteration ``iterations[i]``, which rise.

    ``time_s`` is since the start of the first iteration. ``tokens`` and ``wan_bytes`` are those of all iterations up to
    that one, None if they are not known. ``end_s`` is when training ended: beyond it the curve says nothing. Raise
    ValueError if lengths differ, or iterations do not rise.
    """

    iterations: Iterations
    loss: Numbers
    time_s: Numbers
    end_s: float
    tokens: Numbers | None = None
    wan_bytes: Numbers | None = None

    def __post_init__(self) -> None:
        for values in (self.loss, self.time_s, self.tokens, self.wan_bytes):
            if values is not None and len(values) != len(self.iterations):
                raise ValueError(f"{len(values)} values for {len(self.iterations)} iterations")
        if np.any(np.diff(self.iterations) <= 0):
            raise ValueError("iterations do not rise")

    def loss_at(self, time_s: float) -> float | None:
        """Return the loss at that time; None before the first loss and after the training."""
        if time_s > self.end_s:
            return None
        found = step_at(self.time_s, self.loss, np.array([time_s]))[0]
        return None if np.isnan(found) else float(found)

    def time_to_s(self, loss: float) -> float | None:
        """Return when that loss was first reached; None if it never was."""
        reached = np.flatnonzero(self.loss <= loss)
        return float(self.time_s[reached[0]]) if len(reached) else None


def step_at(x: Numbers, y: Numbers, at: Numbers) -> Numbers:
    """Return the last y whose x is not beyond each of ``at``; NaN before the first. ``x`` must not fall.

    At iterations that end at the same x, the last one counts.
    """
    position = np.searchsorted(x, at, side="right") - 1
    return np.where(position >= 0, y[np.maximum(position, 0)], np.nan)


def counted_until(
    time_ns: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], at_ns: npt.NDArray[np.int64]
) -> Numbers:
    """Return what a counter that was read now and then stood at, between two readings in proportion to the time.

    With readings c(a) and c(b) around t it is ``c(a) + (c(b) - c(a)) (t - a) / (b - a)``; before the first reading and
    after the last one that reading itself. ``time_ns`` must rise.
    """
    return np.interp(at_ns.astype(np.float64), time_ns.astype(np.float64), counts.astype(np.float64))
