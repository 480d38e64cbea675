"""Find the user's cache, by the XDG Base Directory Specification, and say what of it root would trust enough to run.

Whoever could replace a file, or a folder on the way to it, is trusted with it.
"""

import os
import pwd
import stat
import sys
from contextlib import suppress
from pathlib import Path

_ID_MAP = Path("/proc/self/uid_map")
_PASSED_OVER = "WANBED_PASSED_OVER"
"""The paths that this command, or one that started it, has named on standard error as passed over."""
_MOST_LINKS = 40


def sudo_caller() -> str | None:
    """Return the name of the user who started this process by sudo, None if it is not root on behalf of another one."""
    caller = os.environ.get("SUDO_USER")
    if not caller or caller == "root" or os.geteuid() != 0:
        return None
    with suppress(OSError, ValueError):
        if _ID_MAP.read_text().split()[1] != "0":
            # This root is an ordinary user in a user namespace.
            return None
    return caller


def trusted(path: Path) -> bool:
    """Return whether this process may run the file at ``path``, or what is in the folder there.

    Under sudo it is root's to say, so that nobody else may own or write any part of the path. What is passed over is
    named in one line on standard error. A process that is nobody else's trusts all that it finds.
    """
    if sudo_caller() is None or (distrust := distrust_of(path)) is None:
        return True
    told = os.environ.get(_PASSED_OVER, "").split(os.pathsep)
    if str(path) not in told:
        os.environ[_PASSED_OVER] = os.pathsep.join([*filter(None, told), str(path)])
        line = f"{path} is passed over, since root runs only what is its own: {distrust}"
        print(f"wanbed: {line}", file=sys.stderr, flush=True)
    return False


def distrust_of(path: Path) -> str | None:
    """Return which part of a path another user owns or may write, with that user; None if no part.

    The parts are those of the path and of every symbolic link on it. In a folder such as /tmp, whose entries only their
    owners may replace, the entries count. In a folder that nobody else may enter, nobody else writes.
    """
    pending, seen = list(reversed(path.absolute().parts)), 0
    here, closed = Path(pending.pop()), set[Path]()
    while True:
        try:
            found = here.lstat()
        except OSError as fault:
            return f"{here}: {fault.strerror}"
        if (distrust := _distrust(here, found, reachable=closed.isdisjoint(here.parents))) is not None:
            return distrust
        if stat.S_ISDIR(found.st_mode) and _is_closed(found):
            closed.add(here)
        if stat.S_ISLNK(found.st_mode):
            seen += 1
            if seen > _MOST_LINKS:
                return f"{here} is a symbolic link that leads nowhere"
            target = here.readlink()
            pending.extend(reversed(target.parts))
            here = Path(pending.pop()) if target.is_absolute() else here.parent
            continue
        while pending and pending[-1] == "..":
            pending.pop()
            here = here.parent
        if not pending:
            return None
        here /= pending.pop()


def _distrust(part: Path, found: os.stat_result, *, reachable: bool) -> str | None:
    if found.st_uid not in {0, os.geteuid()}:
        return f"{part} belongs to {_user(found.st_uid)}"
    if not reachable or stat.S_ISLNK(found.st_mode) or found.st_mode & stat.S_ISVTX:
        return None
    if found.st_mode & stat.S_IWOTH:
        return f"{part} can be written by everybody"
    if found.st_mode & stat.S_IWGRP and not _is_own_group(found):
        return f"{part} can be written by its group, {found.st_gid}"
    return None


def _is_closed(found: os.stat_result) -> bool:
    """Return whether nobody else may enter a folder."""
    return not found.st_mode & stat.S_IXOTH and (not found.st_mode & stat.S_IXGRP or _is_own_group(found))


def _is_own_group(found: os.stat_result) -> bool:
    return found.st_gid in {0, os.getegid()}


def _user(uid: int) -> str:
    with suppress(KeyError):
        return f"user {pwd.getpwuid(uid).pw_name}"
    return f"uid {uid}"


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
