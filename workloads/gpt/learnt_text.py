"""The texts that a model learns from by name, and their division into a part learnt from and a part held out.

A corpus is real English text that comes with every Python, so that none is fetched. It is read from the Python that
runs it. Other versions of Python have other words in it, so that a run records its ``digest``. Needs no torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class Corpus:
    """A text that is known by name: what it is, its licence, and how it is read."""

    title: str
    licence: str
    read: Callable[[], bytes]

    @cached_property
    def text(self) -> bytes:
        """The text."""
        return self.read()


def _python_topics() -> bytes:
    from pydoc_data.topics import topics  # noqa: PLC0415 - half a megabyte that only those who learn from it need

    return "\n\n".join(topics[name] for name in sorted(topics)).encode()


PYTHON_TOPICS = "python-topics"

CORPORA: Mapping[str, Corpus] = MappingProxyType(
    {
        PYTHON_TOPICS: Corpus(
            "the parts of the Python language reference that help() prints, from pydoc_data.topics",
            "PSF License Version 2",
            _python_topics,
        )
    }
)
"""The corpora by name. A file of the same name is meant by ``./`` before it."""


def text_bytes(text: str) -> "npt.NDArray[np.uint8]":
    """Return the bytes of a text: the name of one of ``CORPORA``, or the path of a file, which is mapped, not read.

    Raise OSError if the file cannot be read.
    """
    import numpy as np  # noqa: PLC0415 - whoever reads an experiment's file needs the names only

    if text in CORPORA:
        return np.frombuffer(CORPORA[text].text, dtype=np.uint8)
    size_bytes = Path(text).stat().st_size
    if not size_bytes:
        # Nothing cannot be mapped.
        return np.empty(0, dtype=np.uint8)
    return np.memmap(text, dtype=np.uint8, mode="r", shape=(size_bytes,))


def digest(text: str) -> str:
    """Return the SHA-256 of a text's bytes, hexadecimal. Raise as ``text_bytes`` does."""
    return sha256(text_bytes(text).tobytes()).hexdigest()


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
