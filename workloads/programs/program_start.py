"""Start a user's program on this host: its environment, its folder and its pipes."""

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from wanbed.ground.files.atomic_write import write_whole
from wanbed.workloads.programs.hook_environment import with_hook
from wanbed.workloads.programs.program_config import ProgramConfig
from wanbed.workloads.programs.read_only_folder import make_read_only

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
        make_read_only(Path(config.folder), () if config.hook is None else (Path(config.hook["log"]).parent,))


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
