"""Repeat a measurement: a warm-up, then repeats of enough passes to be timed, with one figure per repeat."""

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

LEAST_REPEATS = 7

Pass: TypeAlias = Callable[[int], Mapping[str, int]]
"""Runs all actions the given number of times, and returns the mean nanoseconds of each action by its name."""

_MOST_PASSES = 64
_LEAST_WARM_UPS = 3


def repeated(
    once: Pass, repeats: int, *, warmup_ns: int, repeat_ns: int, progress: Callable[[], None] = lambda: None
) -> dict[str, tuple[int, ...]]:
    """Return one figure per repeat for each action, after a warm-up of ``warmup_ns`` and at least three passes.

    A repeat has 1 to 64 passes, so many that they take about ``repeat_ns``, because single microseconds cannot be
    timed. ``progress`` is called after each repeat. Raise ValueError for fewer than ``LEAST_REPEATS`` repeats.
    """
    if repeats < LEAST_REPEATS:
        raise ValueError(f"repeats: {repeats} is below {LEAST_REPEATS}")
    warmed_ns, warm_ups, pass_ns = 0, 0, 0
    while warm_ups < _LEAST_WARM_UPS or warmed_ns < warmup_ns:
        # At least 1 us, so that the warm-up ends even if the clock reports no time.
        pass_ns = max(1_000, sum(once(1).values()))
        warmed_ns += pass_ns
        warm_ups += 1
    passes = max(1, min(_MOST_PASSES, math.ceil(repeat_ns / pass_ns)))
    figures: dict[str, list[int]] = {}
    for _ in range(repeats):
        for action, time_ns in once(passes).items():
            figures.setdefault(action, []).append(time_ns)
        progress()
    return {action: tuple(times_ns) for action, times_ns in figures.items()}
