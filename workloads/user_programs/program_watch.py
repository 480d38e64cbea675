"""Watch a user's program from its start until nothing of it is left: read its output, see its end, end its processes.

One thread does all, and sleeps in ``poll`` between. The process becomes a subreaper: a descendant whose parent ends
becomes its child and not that of process 1, whatever group, session or parent it has given itself. So the process has
no descendants exactly when it has no children.
"""

import os
import select
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from wanbed.workloads.host_process import prctl
from wanbed.workloads.user_programs.program_config import ProgramConfig
from wanbed.workloads.user_programs.program_output import BoundedOutput, IterationMarks, OutputLimitError, OutputPipe
from wanbed.workloads.user_programs.program_start import (
    ReadOnlyError,
    StartError,
    program_environment,
    protect_folder,
    start_program,
)

_PR_SET_CHILD_SUBREAPER = 36

_PATIENCE_S = 10.0

_LOOK_INTERVAL_S = 0.01


def adopt_descendants() -> None:
    """Make this process the parent of every descendant whose own parent ends. Raise OSError if the kernel refuses."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1, "PR_SET_CHILD_SUBREAPER")


def reap() -> dict[int, int]:
    """Return the wait status of each child that has ended since the last call, by its PID."""
    ended = {}
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0] != 0:
            ended[found[0]] = found[1]
    return ended


def kill_descendants() -> dict[int, int]:
    """Kill all descendants, wait until none is left, and return the wait status of those that were reaped here.

    Raise TimeoutError, naming some, if they do not end within 10 s.
    """
    ended: dict[int, int] = {}
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        found = _stop_descendants()
        for pid in found:
            _send(pid, signal.SIGKILL)
        ended.update(reap())
        if not _has_children():
            return ended
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(found)} do not end, look at them with ps")
        time.sleep(_LOOK_INTERVAL_S)


def _stop_descendants() -> set[int]:
    """Stop all descendants and return them. What is stopped starts no further ones while they are looked for."""
    stopped: set[int] = set()
    while new := _descendants() - stopped:
        for pid in new:
            _send(pid, signal.SIGSTOP)
        stopped |= new
    return stopped


def _descendants() -> set[int]:
    children = defaultdict(list)
    for entry in os.listdir("/proc"):
        # A process that ends meanwhile has no file any more.
        if entry.isdigit():
            with suppress(OSError):
                status = Path("/proc", entry, "stat").read_text(encoding="utf-8", errors="replace")
                children[int(status.rpartition(")")[2].split()[1])].append(int(entry))
    found: set[int] = set()
    ahead = [os.getpid()]
    while ahead:
        ahead = [child for pid in ahead for child in children[pid]]
        found.update(ahead)
    return found


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _send(pid: int, number: signal.Signals) -> None:
    # One of another user, or one that has just ended: the deadline reports the former.
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


TOO_MUCH_OUTPUT, NOT_WATCHED = 124, 125
"""The exit statuses for the output limit, and for what a program needs and this machine did not give, like a disk."""

_SIGNALS_BYTES = 4096


class ProgramFailedError(Exception):
    """Raised for a program that failed. The message says how in one line and continues the program's label."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class WatchedProgram:
    """The program of one configuration, which ``run`` starts. SIGTERM then ends it.

    All ends at once if process ``keeper_pid``, the parent of this one, ends. A process has one such object only: its
    signals and its descendants are the program's.
    """

    def __init__(self, config: ProgramConfig, keeper_pid: int) -> None:
        self._config = config
        self._keeper_pid = keeper_pid
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], object]] = {}
        self._pipes: list[OutputPipe] = []
        self._pid = 0
        self._wait_status: int | None = None
        self._asked_to_end = False
        self._kill_at_s: float | None = None

    def run(self) -> int:
        """Run the program and return its exit status, once none of its descendants is left.

        Raise ProgramFailedError if it fails, unless it was asked to end.
        """
        try:
            self._watch_process()
            self._start()
            while self._wait_status is None:
                self._handle_next()
            for pipe in self._pipes:
                pipe.read()
            self._kill()
            for pipe in self._pipes:
                while pipe.read():
                    pass
        except StartError as fault:
            raise ProgramFailedError(f": {fault}", fault.status) from None
        except ReadOnlyError as fault:
            raise ProgramFailedError(f": {fault}", NOT_WATCHED) from None
        except OutputLimitError as fault:
            raise ProgramFailedError(f" {fault}", TOO_MUCH_OUTPUT) from None
        except OSError as fault:
            file = "" if fault.filename is None else f"{fault.filename}: "
            printed = self._last_line("; it printed last: ")
            raise ProgramFailedError(f": {file}{fault.strerror or fault}{printed}", NOT_WATCHED) from None
        finally:
            self._kill()
        code = os.waitstatus_to_exitcode(self._wait_status)
        status = code if code >= 0 else 128 - code
        if code != 0 and not self._asked_to_end:
            raise ProgramFailedError(f" {_end(code)}{self._last_line(': ')}", status)
        return status

    def _watch_process(self) -> None:
        adopt_descendants()
        reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        self._handle(reading, lambda: self._on_signals(os.read(reading, _SIGNALS_BYTES)))
        self._handle(os.pidfd_open(self._keeper_pid), self._on_keepers_end)
        if os.getppid() != self._keeper_pid:
            self._on_keepers_end()

    def _start(self) -> None:
        config = self._config
        marks, epoch_ns = None, 0
        if (lines := config.marks) is not None:
            epoch_ns = lines.epoch_ns
            began_ns = time.monotonic_ns() - epoch_ns
            marks = IterationMarks(Path(lines.span_log), lines.header, lines.pattern, lines.iterations, began_ns)
        for stream, path, marked in (
            ("standard output", config.output.stdout, marks),
            ("standard error", config.output.stderr, None),
        ):
            output = BoundedOutput(stream, Path(path), config.output.limit_bytes)
            pipe = OutputPipe(output, marked, epoch_ns)
            self._pipes.append(pipe)
            self._handle(pipe.reading, partial(self._on_output, pipe))
        environment = program_environment(config, os.environ)
        protect_folder(config)
        self._pid = start_program(config, environment, *(pipe.writing for pipe in self._pipes))
        for pipe in self._pipes:
            pipe.close_writing()

    def _handle(self, descriptor: int, handler: Callable[[], object]) -> None:
        self._poll.register(descriptor, select.POLLIN)
        self._handlers[descriptor] = handler

    def _handle_next(self) -> None:
        left_ms = None if self._kill_at_s is None else max(0.0, self._kill_at_s - time.monotonic()) * 1000
        for descriptor, _ in self._poll.poll(left_ms):
            self._handlers[descriptor]()
        if self._kill_at_s is not None and time.monotonic() >= self._kill_at_s:
            self._kill()

    def _on_output(self, pipe: OutputPipe) -> None:
        pipe.read()
        if pipe.ended:
            self._poll.unregister(pipe.reading)

    def _on_signals(self, numbers: bytes) -> None:
        self._note_ends(reap())
        if signal.SIGTERM in numbers and self._wait_status is None and not self._asked_to_end:
            self._asked_to_end = True
            self._kill_at_s = time.monotonic() + self._config.grace_s
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGTERM)

    def _on_keepers_end(self) -> None:
        kill_descendants()
        os._exit(NOT_WATCHED)

    def _kill(self) -> None:
        self._note_ends(kill_descendants())

    def _note_ends(self, ended: dict[int, int]) -> None:
        self._wait_status = ended.get(self._pid, self._wait_status)

    def _last_line(self, introduced: str) -> str:
        """Return what the program printed last, ``introduced``; standard error is preferred. "" if it printed none."""
        lines = (pipe.output.telling_line() for pipe in reversed(self._pipes))
        line = next(filter(None, lines), "")
        return f"{introduced}{line}" if line else ""


def _end(code: int) -> str:
    """Return how a program ended, from its negative signal or its exit status."""
    if code >= 0:
        return f"ended with status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ", which is how the kernel ends programs when memory runs out" if -code == signal.SIGKILL else ""
    return f"was ended by {name}{hint}"
