"""Make a folder read-only for this process and all that it starts, in a mount namespace of its own."""

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_MOUNT_SETATTR = 442
"""The number of the system call, the same on every architecture; Linux has it since 5.12."""
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 1
_libc = ctypes.CDLL(None, use_errno=True)


class ReadOnlyError(Exception):
    """Raised when the folder cannot be made read-only. The message says in one line what was tried."""


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def make_read_only(folder: Path, writable: Iterable[Path] = ()) -> None:
    """Make ``folder`` and all mounts below it read-only, except for the folders ``writable`` below it.

    Files that are open already stay so. Call it while this process has one thread. Raise ReadOnlyError on failure; then
    nothing may be started here.
    """
    place = os.path.realpath(folder)
    exceptions = [path for path in map(os.path.realpath, writable) if os.path.commonpath([path, place]) == place]
    if place == "/" or place in exceptions:
        raise ReadOnlyError(f"{folder} cannot be read-only: start from a folder of the program's own")
    try:
        _own_mounts()
        _mount("none", "/", _MS_REC | _MS_PRIVATE)
        held = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in exceptions}
        _mount(place, place, _MS_BIND | _MS_REC)
        attributes = _MountAttributes(attr_set=_MOUNT_ATTR_RDONLY)
        _check(
            _libc.syscall(
                ctypes.c_long(_MOUNT_SETATTR),
                ctypes.c_long(_AT_FDCWD),
                os.fsencode(place),
                ctypes.c_long(_AT_RECURSIVE),
                ctypes.byref(attributes),
                ctypes.c_size_t(ctypes.sizeof(attributes)),
            ),
            "mount_setattr",
        )
        for path, descriptor in held.items():
            _mount(f"/proc/self/fd/{descriptor}", path, _MS_BIND | _MS_REC)
            os.close(descriptor)
    except OSError as fault:
        raise ReadOnlyError(f"{folder} cannot be made read-only: {fault.strerror}: leave read_only out") from None
    if not os.statvfs(place).f_flag & os.ST_RDONLY:
        raise ReadOnlyError(f"{folder} is still writable after it was mounted read-only: leave read_only out")


def _own_mounts() -> None:
    """Enter a mount namespace of this process's own, in a user namespace if that is what it takes."""
    user, group = os.geteuid(), os.getegid()
    maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
    try:
        _check(_libc.unshare(_CLONE_NEWNS), "unshare --mount")
    except OSError as refused:
        try:
            _check(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS), "unshare --user --mount")
            for name, text in maps.items():
                _write(Path("/proc/self", name), text)
        except OSError as also_refused:
            raise OSError(also_refused.errno, f"{refused.strerror}, {also_refused.strerror}") from None


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as fault:
        raise OSError(fault.errno, f"unshare --user --mount, writing {path}: {fault.strerror}") from None


def _mount(source: str, place: str, flags: int) -> None:
    status = _libc.mount(os.fsencode(source), os.fsencode(place), None, ctypes.c_ulong(flags), None)
    _check(status, f"mounting {source} on {place}")


def _check(status: int, what: str) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
