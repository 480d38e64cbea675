"""Collect the spans of a simulation as rows of whole numbers."""

import struct
from array import array
from typing import Final

NUMBERS: Final = 8
"""The numbers of a row."""

_PACKED: Final = struct.Struct(f"={NUMBERS}q").pack


class SpanRows:
    """Rows of eight numbers, one row after the other in ``numbers``: 64 bits each, in the machine's order."""

    __slots__ = ("_append", "numbers")

    def __init__(self) -> None:
        self.numbers = array("q")
        self._append = self.numbers.frombytes

    def __len__(self) -> int:
        return len(self.numbers)

    def extend(self, row: tuple[int, ...]) -> None:
        """Add a row. Raise OverflowError if a number is beyond 64 bits, TypeError if it is none."""
        # Packed in one go they take half the time that array.extend takes for them.
        try:
            self._append(_PACKED(*row))
        except struct.error:
            self.numbers.extend(row)
