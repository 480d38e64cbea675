"""Write files atomically: each file is either complete or absent.

This guards against the process being killed, not against the machine losing power. Only the standard library is used.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wanbed.ground.files.regular_file import NotRegularFileError, special_kind

PARTIAL = ".partial"
"""Suffix of a file that is being written. A killed process leaves such a file; the next write replaces it."""


def check_place(path: Path) -> None:
    """Raise OSError if no file can be at ``path``: it is a folder, or the folder above it does not exist.

    Raise NotRegularFileError if it is a pipe or a device, which must not be replaced.
    """
    if (kind := special_kind(path)) is not None:
        raise NotRegularFileError(errno.EINVAL, f"it is {kind}, which a file would replace", str(path))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if not path.parent.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; when the block ends, the file there replaces ``path``.

    If the block raises, ``path`` is unchanged and the temporary file is removed. An OSError names ``path``. Raise what
    ``check_place`` does.
    """
    check_place(path)
    partial = path.with_name(path.name + PARTIAL)
    try:
        with naming(path):
            yield partial
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def written_together(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to write files to; when the block ends, they replace those of their names in ``folder``.

    If the block raises, ``folder`` is unchanged. Others who write there wait. What a killed process left is removed.
    """
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    draft = folder / PARTIAL
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            yield draft
            for file in sorted(draft.iterdir()):
                file.replace(folder / file.name)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    finally:
        os.close(held)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name ``path`` in an OSError of the block that names no file, such as that of a full disk."""
    try:
        yield
    except OSError as fault:
        if fault.filename is not None or fault.errno is None:
            raise
        raise OSError(fault.errno, os.strerror(fault.errno), str(path)) from fault


def write_whole(path: Path, text: str) -> None:
    """Replace the file at ``path`` with ``text``, as UTF-8."""
    with written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")
