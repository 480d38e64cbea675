"""Estimate how long a run still takes, from what its finished steps took."""

from collections.abc import Sequence

Kind = tuple[str | int, ...]
"""The kind of a step, from general to particular: ``("trial", variant, sweep point)``. Equal kinds cost about alike."""

OVERRUN_SHARE = 0.25
"""A step that takes longer than expected is taken to last for another such share of what it took so far."""


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
