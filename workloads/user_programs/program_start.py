"""Start a user's program on this host: its environment, its folder and its pipes.

The environment alone puts the hook into the program's Python. Folders that it must not change are read-only for it and
for all that it starts, in a mount namespace of its own.
"""

import ctypes
import errno
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from wanbed.ground.files import write_whole
from wanbed.workloads.user_programs.program_config import ProgramConfig

HOOK_FOLDER = Path(__file__).resolve().parent / "hook"

_HOOK_VARIABLE = "WANBED_HOOK"


def with_hook(environment: Mapping[str, str], config: Path) -> dict[str, str]:
    """Return the environment in which every Python records as ``config`` says. The caller's PYTHONPATH stays behind."""
    path = [str(HOOK_FOLDER), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(path), _HOOK_VARIABLE: str(config)}


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


def _make_read_only(folder: Path, writable: Iterable[Path] = ()) -> None:
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


NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""The exit statuses that shells give for them."""


class StartError(Exception):
    """Raised if a program cannot be started, with the exit ``status`` for it. The message is one line."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def program_environment(config: ProgramConfig, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the program, and write the hook's configuration beside its log if it has one.

    Raise OSError if that cannot be written.
    """
    environment = {**inherited, **config.environment}
    if config.hook is None:
        return environment
    path = Path(config.hook["log"]).with_suffix(".hook.json")
    write_whole(path, json.dumps(config.hook))
    return with_hook(environment, path)


def protect_folder(config: ProgramConfig) -> None:
    """Make the program's folder read-only if it shall be, but for that of the hook's log. Raise ReadOnlyError."""
    if config.read_only:
        _make_read_only(Path(config.folder), () if config.hook is None else (Path(config.hook["log"]).parent,))


def start_program(config: ProgramConfig, environment: Mapping[str, str], stdout: int, stderr: int) -> int:
    """Start the program as the leader of its own session and return its PID. Raise StartError."""
    try:
        program = subprocess.Popen(
            config.command,
            cwd=config.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    except (OSError, ValueError) as fault:
        raise _start_error(config, environment, fault) from None
    # Its end is read together with that of its descendants.
    program.returncode = 0
    return program.pid


def _start_error(config: ProgramConfig, environment: Mapping[str, str], fault: Exception) -> StartError:
    name = config.command[0]
    if not isinstance(fault, OSError):
        return StartError(f"cannot start {name}: {fault}", NOT_EXECUTABLE)
    if not os.path.isdir(config.folder):
        return StartError(f"cannot start {name}: there is no folder {config.folder}", NOT_FOUND)
    path = _found(name, config.folder, environment)
    if fault.errno in {errno.ENOENT, errno.ENOTDIR} and path is None:
        where = f"in {config.folder}" if "/" in name else "on PATH"
        return StartError(f"cannot start {name}: there is no such program {where}", NOT_FOUND)
    reasons = {
        errno.ENOENT: f"the interpreter that {path}, in its first line or as a program, asks for is not there",
        errno.EACCES: "it is not executable",
        errno.ENOEXEC: "it is neither a program nor a script whose first line names its interpreter with #!",
    }
    reason = reasons.get(fault.errno or 0, fault.strerror or str(fault))
    return StartError(f"cannot start {name}: {reason}", NOT_EXECUTABLE)


def _found(name: str, folder: str, environment: Mapping[str, str]) -> str | None:
    """Return the path of a file, executable or not, that the program's name stands for."""
    if "/" in name:
        path = os.path.join(folder, name)
        return path if os.path.exists(path) else None
    return shutil.which(name, mode=os.F_OK, path=environment.get("PATH", os.defpath))
