"""Where the user's cache is, by the XDG Base Directory Specification."""

import os
import pwd
from contextlib import suppress
from pathlib import Path


def user_cache(name: str) -> Path:
    """Return the folder ``<XDG_CACHE_HOME or ~/.cache>/wanbed/<name>``; it need not exist.

    Raise RuntimeError if no home can be determined.
    """
    root = os.environ.get("XDG_CACHE_HOME", "")
    # The specification ignores relative paths.
    return _below(Path(root) if Path(root).is_absolute() else Path.home() / ".cache", name)


def searched_caches(name: str) -> list[Path]:
    """Return where to look for what was put into ``user_cache``: there and, under sudo, then in the calling user's."""
    folders = []
    with suppress(RuntimeError):
        folders.append(user_cache(name))
    caller = os.environ.get("SUDO_USER")
    if caller and os.geteuid() == 0:
        with suppress(KeyError):
            folders.append(_below(Path(pwd.getpwnam(caller).pw_dir) / ".cache", name))
    return folders


def _below(cache: Path, name: str) -> Path:
    return cache / "wanbed" / name
