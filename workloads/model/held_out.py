"""Divide a text into the part that is learnt from and the part that is held out. Needs no torch."""

from dataclasses import dataclass

DEFAULT_FRACTION = 0.1
DEFAULT_SEQUENCES = 16


@dataclass(frozen=True)
class HeldOut:
    """The part of a text that is held out from learning, and the part of that which is evaluated.

    - ``fraction`` of a text: its end. Of synthetic tokens there are others enough, and none are held out.
    - ``sequences``: the number of sequences that an evaluation takes the mean loss of. They are the same for every
      seed, replica and iteration.

    Raises ValueError naming the field.
    """

    fraction: float = DEFAULT_FRACTION
    sequences: int = DEFAULT_SEQUENCES

    def __post_init__(self) -> None:
        if not 0 < self.fraction < 1:
            raise ValueError(f"fraction: {self.fraction} is not between 0 and 1")
        if self.sequences < 1:
            raise ValueError(f"sequences: {self.sequences} is below 1")

    def first_byte(self, size_bytes: int) -> int:
        """Return where in a text of that size the held-out part begins: at ``size - round(fraction x size)``."""
        return size_bytes - round(self.fraction * size_bytes)

    def check(self, text: str, size_bytes: int, length: int) -> None:
        """Raise ValueError if either part of a text has fewer than ``length`` bytes, a sequence and the next token."""
        begin = self.first_byte(size_bytes)
        for part, own_bytes in (("learnt from", begin), ("held out", size_bytes - begin)):
            if own_bytes < length:
                raise ValueError(
                    f"text: {own_bytes} of the {size_bytes} bytes of {text} are {part}, a sequence and the token after "
                    f"it take {length}"
                )
