"""Refuse to open what is no regular file: a pipe or a device would be waited for. Only the standard library is used."""

import errno
import os
import stat
from pathlib import Path

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
    if (kind := special_kind(path)) is not None:
        fault = f"it is {kind}, not a regular file: save what it gives as a file first"
        raise NotRegularFileError(errno.EINVAL, fault, str(path))
    return path


def special_kind(path: Path) -> str | None:
    """Return what a path names other than a file or a folder, None for these and if it names nothing."""
    try:
        return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode))
    except (OSError, ValueError):
        return None
