"""The texts that a model learns from by name: real English text that comes with every Python, so that none is fetched.

A corpus is read from the Python that runs it. Other versions of Python have other words in it, so that a run records
its ``digest``.
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
