"""Time one thing repeatedly: warm-up, as many passes a repeat as are long enough to time, one figure a repeat."""

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

LEAST_REPEATS = 7

Pass: TypeAlias = Callable[[int], Mapping[str, int]]
"""Does everything so many times; the nanoseconds of each action, their mean."""

_MOST_PASSES = 64
_LEAST_WARM_UPS = 3


def repeated(
    once: Pass, repeats: int, *, warmup_ns: int, repeat_ns: int, progress: Callable[[], None] = lambda: None
) -> dict[str, tuple[int, ...]]:
    """Return one figure of each action for each repeat, after a warm-up of ``warmup_ns`` and at least three passes.

    A repeat takes as many passes as last about ``repeat_ns``, 1 to 64, because microseconds cannot be timed by
    themselves. ``progress`` is called after each repeat. Raises ValueError for fewer than ``LEAST_REPEATS`` repeats.
    """
    if repeats < LEAST_REPEATS:
        raise ValueError(f"repeats: {repeats} is below {LEAST_REPEATS}")
    warmed_ns, warm_ups, pass_ns = 0, 0, 0
    while warm_ups < _LEAST_WARM_UPS or warmed_ns < warmup_ns:
        # Whatever a clock says, a warm-up ends.
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
