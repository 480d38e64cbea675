"""``wanbed exec``: run any unmodified program on an emulated host, with others beside it on other hosts."""

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
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wanbed.ground.errors import InputError, prefixed
from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.runner.cli.arguments import Clock, ExperimentFile, Overrides, SubstrateName, as_options, with_clock
from wanbed.runner.cli.exit_status import fail, one_line_errors

if TYPE_CHECKING:
    from wanbed.testbed.network.topology import Topology

_NO_WAN = (
    "wanbed: NO WAN: between these hosts nothing is delayed, lost or limited, whatever the file says; "
    "what is measured here says nothing about a WAN"
)


def exec_(
    file: ExperimentFile,
    host: Annotated[str, typer.Argument(metavar="HOST", help="Where to run it, like east-0.")],
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The program and its arguments.")],
    *,
    overrides: Overrides = None,
    clock: Clock = None,
    substrate: SubstrateName = "auto",
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="'HOST CMD'", help="A program to start first, like 'west-0 iperf3 -s'."),
    ] = None,
    fresh: Annotated[bool, typer.Option(help="A network of its own even where this file's is up already.")] = False,
    no_wan: Annotated[
        bool, typer.Option("--no-wan", help="Hosts that nothing delays or limits: needs no netem, emulates no WAN.")
    ] = False,
) -> None:
    """Run a program on a host of the file's network, and pass its output and exit status through.

    If exactly this network is up already (for example in `wanbed shell`), the program joins it. Otherwise a network is
    brought up while the program runs. Hosts find each other by name. The program starts in the current folder, with
    this environment. Links that change begin to when the program starts, on a network that is up already when that
    came up. What programs of --also print goes to standard error, each line after its host's name; if one of them fails
    before the program has ended, so does the command.
    """
    with one_line_errors():
        from wanbed.runner.cli.user_namespace import enter_user_namespace, report_leftovers
        from wanbed.runner.emulation.gpu_provisioning import provision_gpus
        from wanbed.runner.emulation.network_choice import check_namespaces, first_point, network_up, source_of
        from wanbed.runner.emulation.virtual_clock import wants_guest
        from wanbed.runner.experiment.experiment_document import ExperimentDocument
        from wanbed.testbed.hosts.host_environment import system_path
        from wanbed.testbed.hosts.joining import join_testbed
        from wanbed.testbed.rights import in_user_namespace

        written = with_clock(overrides, clock)
        point = first_point(ExperimentDocument.read(file, written))
        main, others = HostCommand(host, command), [HostCommand.parse(text) for text in also or []]
        folder = _current_folder()
        os.environ["PATH"] = path = system_path()
        for each in (main, *others):
            _check_host(file, point.topology, each.host)
            check_command(each, path)
        check_namespaces("exec", substrate)
        if no_wan:
            _check_no_wan(point.spec.clock, substrate)
        if wants_guest(point.spec, substrate):
            raise typer.Exit(_exec_inside(file, host, command, written, also or []))
        joined = None if fresh or no_wan or in_user_namespace() else join_testbed(source_of(file), point.topology)
        if joined is not None:
            print(f"wanbed: on testbed {joined.identifier}, which is up already", file=sys.stderr)
            with joined.programs_end_here():
                status = run_commands(joined.spawn, main, others, folder)
        else:
            # Only now: a testbed that is up can be joined from outside its user namespace, not from inside another.
            enter_user_namespace()
            if no_wan:
                print(_NO_WAN, file=sys.stderr)
            report_leftovers()
            with prefixed(f"{file}: "):
                gpus = provision_gpus(point)
            with network_up(point.topology, substrate, file, gpus=gpus, shaped=not no_wan) as testbed:
                begin = (lambda: None) if no_wan or testbed.changing is None else testbed.changing.begin
                status = run_commands(testbed.spawn, main, others, folder, begin=begin)
    raise typer.Exit(status)


def _check_no_wan(clock: str, substrate: str) -> None:
    no_time = "what nothing limits takes no virtual time"
    check_exclusions(
        Exclusion("--no-wan", "no substrate adds impairments then", when=substrate != "auto", leave="--substrate"),
        Exclusion("--no-wan", no_time, "give --clock real", when=clock == "virtual"),
    )


def _exec_inside(file: Path, host: str, command: list[str], overrides: list[str], also: list[str]) -> int:
    from wanbed.runner.emulation.virtual_clock import COMMAND, enter_virtual_time
    from wanbed.testbed.virtual_time.kernel_cache import virtual_kernel

    kernel = virtual_kernel()
    arguments = ["exec", str(file), *as_options(overrides)]
    arguments += [*(f"--also={other}" for other in also), host, "--", *command]
    return enter_virtual_time(kernel, COMMAND, arguments, files=[file], standard_input=_whole_input())


def _whole_input() -> bytes | None:
    """Return all of standard input for the program, None at a terminal: virtual time does not wait for a user."""
    return None if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()


def _check_host(file: Path, topology: "Topology", name: str) -> None:
    with prefixed(f"{file}: "):
        topology.host(name)


def _current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise InputError("the current folder has been removed: change to another") from None


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
