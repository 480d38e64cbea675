"""Read what a user names for a comparison: the two runs, and the margin."""

import re
from pathlib import Path

from ground.strict_model import InputError
from ground.units import parse_fraction
from results.reading.run import Run, load_run


def load_both(a: Run | Path, b: Run | Path) -> tuple[Run, Run]:
    """Return two runs, of which those given as folders are read, and a folder that is given twice only once."""
    first = a if isinstance(a, Run) else load_run(a, coded=True)
    if isinstance(b, Run):
        return first, b
    return first, first if b.resolve() == first.path.resolve() else load_run(b, coded=True)


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
