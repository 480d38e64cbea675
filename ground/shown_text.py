"""Format the user's text and values for a message: short, on one line. Only the standard library is used."""

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
