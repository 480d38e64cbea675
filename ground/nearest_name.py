"""Guess which known name an unknown one was meant to be, only where it is near. Only the standard library is used."""

from collections.abc import Collection

_OTHER_WORDS = {"bandwidth": "rate", "bw": "rate", "delay": "latency", "drop": "loss", "rtt": "latency"}
"""Words of other tools, and the names that a file of ours has for the same."""
_NOTES = {"rtt": " It is one way: half of an RTT"}
_LETTERS_PER_EDIT = 4
_MOST_EDITS = 2


def nearest_name(written: str, known: Collection[str]) -> str | None:
    """Return the known name that ``written`` most likely misspells or calls otherwise; None if no name is near.

    A name is near if one edit, in names of 7 characters and more two edits, turn one into the other. An edit adds,
    leaves out or replaces a character, or swaps two neighbours. Upper and lower case are the same.
    """
    if (meant := _OTHER_WORDS.get(written.lower())) in known:
        return meant
    most = min(_MOST_EDITS, (len(written) + 1) // _LETTERS_PER_EDIT)
    near = [name for name in known if abs(len(name) - len(written)) <= most]
    edits = {name: _edits(written.lower(), name.lower()) for name in near}
    best = min(near, key=lambda name: edits[name], default=None)
    return best if best is not None and edits[best] <= most else None


def did_you_mean(written: str, known: Collection[str], otherwise: str) -> str:
    """Return the remedy for an unknown name: the nearest known name, or ``otherwise`` if no name is near."""
    near = nearest_name(written, known)
    note = _NOTES.get(written.lower(), "") if near == _OTHER_WORDS.get(written.lower()) else ""
    return otherwise if near is None else f"did you mean {str(near)!r}?{note}"


def _edits(one: str, other: str) -> int:
    """Return the number of edits between two texts (optimal string alignment distance)."""
    before: list[int] = []
    above = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        current = [row]
        for column, opposite in enumerate(other, 1):
            edits = min(above[column] + 1, current[-1] + 1, above[column - 1] + (letter != opposite))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == opposite:
                edits = min(edits, before[column - 2] + 1)
            current.append(edits)
        before, above = above, current
    return above[-1]
