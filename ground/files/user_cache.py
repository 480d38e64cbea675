"""Find the user's cache, by the XDG Base Directory Specification."""

import os
import pwd
from contextlib import suppress
from pathlib import Path

from wanbed.ground.files.trusted_path import distrust_of, sudo_caller


def user_cache(name: str) -> Path:
    """Return the folder ``<XDG_CACHE_HOME or ~/.cache>/wanbed/<name>``; it need not exist.

    Under ``sudo -E`` those may be the caller's, where root keeps nothing that it runs: it is then in root's home.
    Raise RuntimeError if no home can be determined.
    """
    root = os.environ.get("XDG_CACHE_HOME", "")
    # The specification ignores relative paths.
    cache = Path(root) if Path(root).is_absolute() else Path.home() / ".cache"
    if sudo_caller() is not None and distrust_of(_present(cache)) is not None:
        cache = Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".cache"
    return _below(cache, name)


def searched_caches(name: str) -> list[Path]:
    """Return where to look for what was put into ``user_cache``: there and, under sudo, then in the calling user's.

    What is found is run only if it is ``trusted``.
    """
    folders = []
    with suppress(RuntimeError):
        folders.append(user_cache(name))
    if (caller := sudo_caller()) is not None:
        with suppress(KeyError):
            folders.append(_below(Path(pwd.getpwnam(caller).pw_dir) / ".cache", name))
    return folders


def _present(folder: Path) -> Path:
    """Return the folder, or what there is of the way to it: what is missing will be this process's own."""
    return next((each for each in (folder, *folder.parents) if each.exists()), folder)


def _below(cache: Path, name: str) -> Path:
    return cache / "wanbed" / name
