"""Read what a user names for a comparison: the two runs, and the margin."""

import re
from collections.abc import Sequence
from pathlib import Path

from wanbed.ground.strict_model import InputError
from wanbed.ground.units import parse_fraction
from wanbed.results.reading.run import Run, load_run


def load_both(a: Run | Path, b: Run | Path) -> tuple[Run, Run]:
    """Return two runs, of which those given as folders are read, and a folder that is given twice only once."""
    first = a if isinstance(a, Run) else load_run(a, coded=True)
    if isinstance(b, Run):
        return first, b
    return first, first if b.resolve() == first.path.resolve() else load_run(b, coded=True)


def load_clocks(clocks: Sequence[Run | Path], count: int) -> list[Run | None]:
    """Return a clock for each of ``count`` runs: one that is given once is for all, none leaves them their own.

    Raise InputError if there are neither 0 nor 1 nor ``count``.
    """
    if not clocks:
        return [None] * count
    loaded = [clock if isinstance(clock, Run) else load_run(clock, coded=True) for clock in clocks]
    if len(loaded) not in {1, count}:
        raise InputError(
            f"--clock: {len(loaded)} are given, and {count} runs to time: give one for all, or one for each"
        )
    return [loaded[0]] * count if len(loaded) == 1 else [*loaded]


def parse_margin(text: str) -> float:
    """Return the fraction that a margin like ``2%`` stands for. Raise InputError for any other text."""
    number = text.strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", number):
        raise InputError(f"--margin {number}: a percentage has its sign, write {number}%")
    if "e" in number.lower() and number.endswith("%"):
        raise InputError(f"--margin {number}: an exponent is not read, write a plain percentage like 0.5%")
    try:
        return parse_fraction(text)
    except ValueError as refusal:
        raise InputError(f"--margin: {refusal}") from None
