"""Write files atomically: each file is either complete or absent.

This guards against the process being killed, not against the machine losing power. Only the standard library is used.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL = ".partial"
"""Suffix of a file that is being written. A killed process leaves such a file; the next write replaces it."""


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; when the block ends, the file there replaces ``path``.

    If the block raises, ``path`` is unchanged and the temporary file is removed.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Replace the file at ``path`` with ``text``, as UTF-8."""
    with written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")
