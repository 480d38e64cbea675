"""Say how far an iteration is above its lower bound, and what the bound consists of."""

from wanbed.results.text.number_text import UNKNOWN, ratio_text


def bound_text(ratio: float | None, part: str | None) -> str:
    """Return ``1.31x bound (gpu of stage 2)``; n/a without a bound."""
    return UNKNOWN if ratio is None or part is None else f"{ratio_text(ratio)} bound ({part})"
