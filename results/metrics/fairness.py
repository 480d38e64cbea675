"""Compute how evenly jobs that share the WAN are served."""

from collections.abc import Sequence

import pandas as pd


def while_all_ran(windows: pd.DataFrame, until_ns: int) -> pd.DataFrame:
    """Return the iterations that ended by ``until_ns``, when the first of the jobs had done its last iteration.

    ``windows`` are those of ``iteration_windows``. After that time there is less traffic than the trial is about.
    """
    return windows[windows["end_ns"] <= until_ns]


def slow_down(alone_s: float | None, beside_s: float | None) -> float | None:
    """Return the iteration time beside other jobs divided by the one alone; None if either is unknown."""
    return beside_s / alone_s if alone_s and beside_s else None


def jain_index(slow_downs: Sequence[float]) -> float:
    """Return Jain's fairness index of the jobs' speeds, each relative to the job alone: x = 1 / slow-down.

    ``(sum x)^2 / (n sum x^2)``: 1 if all jobs are slowed down alike, 1/n if one runs and the others stand still.

    Source: R. Jain, D. Chiu and W. Hawe, A Quantitative Measure of Fairness, DEC-TR-301, 1984.
    """
    speeds = [1 / each for each in slow_downs]
    return sum(speeds) ** 2 / (len(speeds) * sum(each * each for each in speeds))
