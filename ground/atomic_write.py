"""Write files so that each is there whole or not at all. Needs the standard library alone.

This guards against the process being killed, not against the machine losing power.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL = ".partial"
"""Ends the name of what is being written. A killed process leaves it behind, and the next write replaces it."""


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a path to write to: what is there when the block has ended replaces what was at ``path``.

    A block that raises leaves ``path`` as it was and nothing beside it.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 in place of what was at ``path``."""
    with written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")
