"""Define the errors that a caller can expect, and word their messages. Only the standard library is used.

Users' text and values are shown short, on one line; for an unknown name the known one is guessed that is near.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager


class WanbedError(Exception):
    """Raised for what is no mistake of this program: unusable input, a machine that lacks something, a failed trial.

    The message says in one line what is wrong and what to do. Any other error is a bug.
    """


class SimulationError(WanbedError):
    """A variant cannot be simulated to its end. The message is one line."""


class MissingError(WanbedError):
    """The machine lacks something; the message is one line that names it and what to install. Exit status 5."""


class InputError(WanbedError):
    """The user's input is unusable. Exit status 2.

    Each argument is one mistake, which names place, field and remedy. As text each is one line, whatever a user's text
    in it holds, and all together are one.
    """

    @property
    def mistakes(self) -> tuple[str, ...]:
        """Every mistake, one line each."""
        return tuple(one_line(str(mistake)) for mistake in self.args)

    def __str__(self) -> str:
        """Return all mistakes as one line."""
        return "; ".join(self.mistakes)


class LocatedError(InputError):
    """The message names a place outside the file that is being read: another file's line, an option. Never prefixed."""


@contextmanager
def prefixed(prefix: str) -> Iterator[None]:
    """Put ``prefix`` in front of each mistake of any InputError that is raised inside, except a LocatedError.

    A check names the field only. The code that knows the file or the sweep point puts it in front, once, in this way.
    """
    try:
        yield
    except LocatedError:
        raise
    except InputError as refusal:
        refusal.args = tuple(f"{prefix}{mistake}" for mistake in refusal.mistakes)
        raise


MAX_SHOWN_CHARACTERS = 60
"""Longest value shown in a message, so that the remedy after it stays visible."""

MAX_DIGITS = 40
"""Most digits of a number that is parsed: more than any bound has, and still cheap to compute with."""


def shortened(text: str) -> str:
    """Return ``text``, cut to ``MAX_SHOWN_CHARACTERS`` and followed by ``...`` if it is longer."""
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}..."


def one_line(text: str) -> str:
    """Return ``text`` as one line: line breaks become spaces, unprintable characters are escaped."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in " ".join(text.split()))


def shown(value: object) -> str:
    """Return the ``repr`` of a user's value, shortened for a message."""
    if type(value) is int and abs(value) >= 10**MAX_DIGITS:
        # Python raises ValueError when it converts an integer of thousands of digits to text.
        return f"a number of more than {MAX_DIGITS} digits"
    if isinstance(value, str):
        return repr(shortened(value))
    try:
        return shortened(repr(value))
    except ValueError:
        return f"a {type(value).__name__} with a number of more than {MAX_DIGITS} digits"


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
