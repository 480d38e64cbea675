"""Repeat a measurement: a warm-up, then repeats of enough passes to be timed, with one figure per repeat."""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeAlias

LEAST_REPEATS = 7

Pass: TypeAlias = Callable[[int], Mapping[str, int]]
"""Runs all actions the given number of times, and returns the mean nanoseconds of each action by its name."""

_MOST_PASSES = 64
"""The passes of one call, so that a call's events and microbatches stay few. A repeat may have many calls."""

_LEAST_WARM_UPS = 3

_LEAST_PASS_NS = 1_000
"""The least time that a pass is taken to last, so that everything ends even if the clock reports no time."""


@dataclass(frozen=True)
class Pace:
    """The pace of a measurement: ``repeats`` of at least ``repeat_ns`` each, after ``warmup_ns``.

    The repeats, without the warm-up, run inside ``watched``, which is entered anew for each measurement. Raises
    ValueError for fewer than ``LEAST_REPEATS`` repeats.
    """

    repeats: int
    warmup_ns: int
    repeat_ns: int
    watched: Callable[[], AbstractContextManager[object]] = nullcontext

    def __post_init__(self) -> None:
        if self.repeats < LEAST_REPEATS:
            raise ValueError(f"repeats: {self.repeats} is below {LEAST_REPEATS}")


def repeated(once: Pass, pace: Pace, progress: Callable[[], None] = lambda: None) -> dict[str, tuple[int, ...]]:
    """Return one figure per repeat for each action, after a warm-up of at least three passes.

    A repeat has as many passes as take ``pace.repeat_ns`` or longer, at least one, because single microseconds cannot
    be timed. Its figure is the mean of its passes. ``progress`` is called after each repeat.
    """
    warmed_ns, warm_ups, pass_ns = 0, 0, 0
    while warm_ups < _LEAST_WARM_UPS or warmed_ns < pace.warmup_ns:
        pass_ns = _pass_ns(once(1))
        warmed_ns += pass_ns
        warm_ups += 1
    passes = max(1, min(_MOST_PASSES, math.ceil(pace.repeat_ns / pass_ns)))
    figures: dict[str, list[int]] = {}
    with pace.watched():
        for _ in range(pace.repeats):
            for action, time_ns in _repeat(once, passes, pace.repeat_ns).items():
                figures.setdefault(action, []).append(time_ns)
            progress()
    return {action: tuple(times_ns) for action, times_ns in figures.items()}


def _repeat(once: Pass, passes: int, repeat_ns: int) -> dict[str, int]:
    total_ns: dict[str, int] = {}
    calls, spent_ns = 0, 0
    while not calls or spent_ns < repeat_ns:
        times_ns = once(passes)
        calls += 1
        spent_ns += passes * _pass_ns(times_ns)
        for action, time_ns in times_ns.items():
            total_ns[action] = total_ns.get(action, 0) + time_ns
    return {action: time_ns // calls for action, time_ns in total_ns.items()}


def _pass_ns(times_ns: Mapping[str, int]) -> int:
    return max(_LEAST_PASS_NS, sum(times_ns.values()))
