"""Watch a user's program from its start until nothing of it is left: read its output, see its end, end its processes.

One thread does all, and sleeps in ``poll`` between.
"""

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from wanbed.workloads.programs.bounded_output import BoundedOutput, OutputLimitError
from wanbed.workloads.programs.descendants import adopt_descendants, kill_descendants, reap
from wanbed.workloads.programs.iteration_marks import IterationMarks
from wanbed.workloads.programs.output_pipe import OutputPipe
from wanbed.workloads.programs.program_config import ProgramConfig
from wanbed.workloads.programs.program_start import StartError, program_environment, protect_folder, start_program
from wanbed.workloads.programs.read_only_folder import ReadOnlyError

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
        marks = None
        if (lines := config.marks) is not None:
            began_ns = time.monotonic_ns() - config.epoch_ns
            marks = IterationMarks(Path(lines.span_log), lines.header, lines.pattern, lines.iterations, began_ns)
        for stream, path, marked in (
            ("standard output", config.stdout, marks),
            ("standard error", config.stderr, None),
        ):
            output = BoundedOutput(stream, Path(path), config.output_limit_bytes)
            pipe = OutputPipe(output, marked, config.epoch_ns)
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
