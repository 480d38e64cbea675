"""Read and write files: regular ones only, and whole or not at all. Only the standard library is used.

A pipe or a device would be waited for. A file that is written is either complete or absent: that guards against the
process being killed, not against the machine losing power.
"""

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def with_marked_text(page: str, begin: str, end: str, text: str) -> str:
    """Return the page with ``text`` between the marks ``begin`` and ``end``, each a line, and an empty line around it.

    Raise ValueError if a mark is missing.
    """
    before, begun, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise ValueError(f"the page lacks {begin!r} or {end!r}")
    return f"{before}{begin}\n{text.strip()}\n\n{end}{after}"


_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotRegularFileError(OSError):
    """Raised for a path that names something other than a regular file. ``strerror`` says what, with the remedy."""


def regular_file(path: Path) -> Path:
    """Return the path of a file that a user has named, to be opened.

    Raise NotRegularFileError for a pipe, a socket or a device, also behind a symbolic link. What cannot be opened at
    all, like a folder or a path that names nothing, is returned: the opening raises at once.
    """
    if (kind := _special_kind(path)) is not None:
        fault = f"it is {kind}, not a regular file: save what it gives as a file first"
        raise NotRegularFileError(errno.EINVAL, fault, str(path))
    return path


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """Return the content of a file that a user has named. Of a longer one it is the first ``most_bytes`` and one more.

    Raise OSError, whose ``strerror`` says why, for what cannot be read: also for what ``regular_file`` refuses, and for
    a path that no file can have.
    """
    try:
        with regular_file(path).open("rb") as file:
            return file.read(most_bytes + 1)
    except ValueError as fault:
        raise OSError(errno.EINVAL, str(fault), str(path)) from None


def _special_kind(path: Path) -> str | None:
    """Return what a path names other than a file or a folder, None for these and if it names nothing."""
    try:
        return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode))
    except (OSError, ValueError):
        return None


PARTIAL = ".partial"
"""Suffix of a file that is being written. A killed process leaves such a file; the next write replaces it."""


def check_place(path: Path) -> None:
    """Raise OSError if no file can be at ``path``: it is a folder, or the folder above it does not exist.

    Raise NotRegularFileError if it is a pipe or a device, which must not be replaced.
    """
    if (kind := _special_kind(path)) is not None:
        raise NotRegularFileError(errno.EINVAL, f"it is {kind}, which a file would replace", str(path))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if not path.parent.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; when the block ends, the file there replaces ``path``.

    If the block raises, ``path`` is unchanged and the temporary file is removed. Others who write that file wait. An
    OSError names ``path``. Raise what ``check_place`` does.
    """
    check_place(path)
    partial = path.with_name(path.name + PARTIAL)
    with naming(path), _held(partial):
        try:
            yield partial
            partial.replace(path)
        except BaseException:
            # After the file was renamed, that path may be another writer's.
            partial.unlink(missing_ok=True)
            raise


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold an empty file at ``path``, alone, until the block ends, which may rename or remove it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Otherwise whoever held it before has renamed or removed it.
            if _is_at(path, descriptor):
                os.truncate(descriptor, 0)
                yield
                return
        finally:
            os.close(descriptor)


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
