"""Run the programs of ``wanbed exec``: the main one, and those beside it, whose failure is the command's too."""

import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tty
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from wanbed.ground.strict_model import InputError
from wanbed.runner.cli.exit_status import fail

Spawn = Callable[..., "subprocess.Popen[Any]"]
"""A function that starts a program on a host, like ``Testbed.spawn``."""

_NOT_FOUND, _NOT_EXECUTABLE, _SIGNALLED = 127, 126, 128
"""Exit statuses of a shell: for a program that it does not find or cannot start, and added to a signal's number."""
_SETTLED_S = 0.2
"""Time for a program of --also to start, for example to listen, before the next program starts."""
_GRACE_S = 2.0
"""Time for a program to end by itself after a signal. After that it is killed."""
_BYTES = 65536


@dataclass(frozen=True)
class HostCommand:
    """A program with its arguments, and the host to run it on."""

    host: str
    argv: Sequence[str]

    @classmethod
    def parse(cls, text: str) -> "HostCommand":
        """Parse the value of ``--also``. Raise InputError if it does not have a host and a program."""
        try:
            words = shlex.split(text)
        except ValueError as fault:
            raise InputError(f"--also {text!r}: {fault}") from None
        if len(words) < 2:
            raise InputError(f"--also {text!r}: give a host and a program, like 'west-0 iperf3 -s'")
        return cls(words[0], words[1:])

    def __str__(self) -> str:
        return f"{self.host}: {shlex.join(self.argv)}"


def check_command(command: HostCommand, path: str) -> None:
    """Exit as a shell does, after one line, if the program is not found on ``path`` or cannot be executed."""
    program = command.argv[0]
    if shutil.which(program, path=path) is not None:
        return
    if os.sep not in program:
        folders = path.split(os.pathsep)
        if not any(Path(folder, program).is_file() for folder in folders):
            fail(f"{command}: command not found", _NOT_FOUND)
    elif not Path(program).exists():
        fail(f"{command}: no such file", _NOT_FOUND)
    elif Path(program).is_dir():
        fail(f"{command}: that is a folder: give a program", _NOT_EXECUTABLE)
    fail(f"{command}: not executable: chmod +x, or give the program that reads it", _NOT_EXECUTABLE)


def run_commands(
    spawn: Spawn,
    command: HostCommand,
    beside: Iterable[HostCommand],
    folder: str,
    *,
    begin: Callable[[], object] = lambda: None,
) -> int:
    """Run a program, with others beside it from before its start to its end; return its exit status as a shell does.

    ``begin`` is called just before the program is started, and after the others were.

    All start in ``folder``. The output of those beside goes to standard error, each line with its host's name. If one
    of them fails before the program has ended, end the program too, report the failure in one line, and exit with the
    failed one's status.
    """
    with ExitStack() as running:
        others: list[_Beside] = []
        for other in beside:
            others.append(_Beside(spawn, other, folder))
            running.callback(others[-1].end)
            _wait_for_any([others[-1].process], _SETTLED_S)
            _stop_if_failed(others, command)
        begin()
        process = spawn(command.host, command.argv, cwd=folder)
        running.callback(_end, process)
        try:
            while process.poll() is None:
                _stop_if_failed(others, command)
                _wait_for_any([process, *(other.process for other in others)])
        except KeyboardInterrupt:
            # The interrupt from a terminal has reached the program too.
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
            raise
        if process.returncode:
            # It may have failed because one beside it did at the same moment.
            _stop_if_failed(others, command)
    return _shell_status(process.returncode)


def _stop_if_failed(others: Sequence["_Beside"], command: HostCommand) -> None:
    """Exit after one line if a program beside has failed."""
    for other in others:
        status = other.process.poll()
        if status:
            other.finish_output()
            number = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
            fail(
                f"--also: {other.command}: ended with {number} before the program on {command.host}",
                _shell_status(status),
            )


class _Beside:
    """A program beside the main one. Its output appears on standard error, line by line, after its host's name."""

    def __init__(self, spawn: Spawn, command: HostCommand, folder: str) -> None:
        self.command = command
        # At a terminal programs write each line at once, to a pipe only when a buffer is full.
        output, theirs = os.openpty()
        try:
            tty.setraw(theirs)
            self.process = spawn(
                command.host, command.argv, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=folder
            )
        finally:
            os.close(theirs)
        self._relay = Thread(target=self._show, args=(output,), daemon=True)
        self._relay.start()

    def end(self) -> None:
        """End the program, and show what it printed."""
        _end(self.process)
        self.finish_output()

    def finish_output(self) -> None:
        """Wait until the output of the ended program has been shown. Its children may still hold the terminal."""
        self._relay.join(_GRACE_S)

    def _show(self, output: int) -> None:
        pending = b""
        while data := _read(output):
            *lines, pending = (pending + data).split(b"\n")
            self._print(lines)
        self._print([pending] if pending else [])
        os.close(output)

    def _print(self, lines: Iterable[bytes]) -> None:
        text = "".join(f"{self.command.host}: {line.decode(errors='replace').rstrip()}\n" for line in lines)
        # Whoever read standard error may have gone.
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()


def _read(output: int) -> bytes:
    """Read from a terminal; return nothing once no program holds its other end."""
    try:
        return os.read(output, _BYTES)
    except OSError:
        return b""


def _wait_for_any(processes: Iterable["subprocess.Popen[Any]"], timeout_s: float | None = None) -> None:
    """Sleep until a running process ends, at most for ``timeout_s``."""
    with ExitStack() as opened:
        ends = select.poll()
        for process in processes:
            if process.returncode is None:
                descriptor = os.pidfd_open(process.pid)
                opened.callback(os.close, descriptor)
                ends.register(descriptor, select.POLLIN)
        ends.poll(None if timeout_s is None else timeout_s * 1000)


def _end(process: "subprocess.Popen[Any]") -> None:
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _shell_status(status: int) -> int:
    return _SIGNALLED - status if status < 0 else status
