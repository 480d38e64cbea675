"""Show text and values of the user's in a message: short, on one line. Needs the standard library alone."""

MAX_SHOWN_CHARACTERS = 60
"""Of a value in a message: what is longer would hide the remedy."""

MAX_DIGITS = 40
"""Of a number that is read: more than any bound has, and few enough to work with at once."""


def shortened(text: str) -> str:
    """Return ``text``, or the beginning of one that is too long for a message."""
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}..."


def one_line(text: str) -> str:
    """Return ``text`` as one line of a message: line breaks become spaces, what is unprintable is escaped."""
    if text.isprintable():
        return text
    joined = " ".join(text.split())
    return joined if joined.isprintable() else ascii(joined)[1:-1]


def shown(value: object) -> str:
    """Return a value of the user's as a message shows it: as Python writes it, and short."""
    if type(value) is int and abs(value) >= 10**MAX_DIGITS:
        # Python itself refuses to write out what has thousands of digits.
        return f"a number of more than {MAX_DIGITS} digits"
    if isinstance(value, str):
        return repr(shortened(value))
    try:
        return shortened(repr(value))
    except ValueError:
        return f"a {type(value).__name__} with a number of more than {MAX_DIGITS} digits"
