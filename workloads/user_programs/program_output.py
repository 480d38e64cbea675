"""Save what a user's program prints, up to a limit, and find in it iterations and the reason of a failure."""

import fcntl
import os
import re
import time
from contextlib import suppress
from pathlib import Path

from wanbed.ground.errors import one_line
from wanbed.ground.files import naming
from wanbed.results.records.span_log import ITERATION, NO_MICROBATCH, RankPlace, Span, SpanLog

_TAIL_BYTES = 32 * 2**10
"""So much of the end of what a program printed is looked at."""

_MAX_CHARACTERS = 400

_COLOUR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")

_TRACEBACK = re.compile(r"^(?P<prefix>(?:\[[^\]\n]*\]:? ?)?)Traceback \(most recent call last\):$")
"""The first line of a Python traceback. torch puts the rank in front of each line of one, like ``[rank0]: ``."""


def telling_line(printed: bytes) -> str:
    """Return the exception of the last Python traceback in what was printed, or else the last line with a word in it.

    Other lines often follow an exception: warnings of what was not closed. Return "" if there is no such line.
    """
    text = _COLOUR.sub("", printed.decode("utf-8", errors="replace"))
    # A progress bar returns to the start of its line: what was printed last is what is seen.
    lines = [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in text.split("\n")]
    told = _exception(lines) or next((line for line in reversed(lines) if any(map(str.isalnum, line))), "")
    line = one_line(told.strip())
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}..."


def telling_line_of(path: Path) -> str:
    """Return the telling line of the end of a file, "" if there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return telling_line(file.read())
    except FileNotFoundError:
        return ""


def _exception(lines: list[str]) -> str | None:
    """Return the line that follows the indented ones of the last traceback, None without one."""
    for number in range(len(lines) - 1, -1, -1):
        if (found := _TRACEBACK.match(lines[number])) is None:
            continue
        prefix = found["prefix"]
        following = (line.removeprefix(prefix) for line in lines[number + 1 :] if line.startswith(prefix))
        return next((line for line in following if line and not line.startswith(" ")), None)
    return None


_MAX_LINE_BYTES = 16 * 2**10
"""The pattern is searched for in so much of a line; a program may print without ever ending a line."""


class IterationMarks:
    """The span log of one program. Each line in which ``pattern`` is found ends an iteration, up to ``iterations``.

    A carriage return ends a line too, as of a progress bar that writes over itself.

    The first iteration begins now, at ``began_ns``, each other one where the one before ended. The log is complete with
    the last iteration, whatever the program prints after it.
    """

    def __init__(self, path: Path, header: RankPlace, pattern: str, iterations: int, began_ns: int) -> None:
        self._path = path
        self._log = SpanLog(path, header)
        self._pattern = re.compile(pattern)
        self._iterations = iterations
        self._ended = 0
        self._last_ns = began_ns
        self._line = b""

    def add(self, printed: bytes, now_ns: int) -> None:
        """Look for marks in what was read from standard output at ``now_ns``. Raise OSError, naming the log."""
        first, *others = re.split(rb"[\r\n]", printed)
        self._line += first[: _MAX_LINE_BYTES - len(self._line)]
        for line in others:
            self._end_line(now_ns)
            self._line = line[:_MAX_LINE_BYTES]

    def close(self, now_ns: int) -> None:
        """Take what was printed last as a line, even without its end. Raise OSError, naming the log."""
        self._end_line(now_ns)

    def _end_line(self, now_ns: int) -> None:
        line, self._line = self._line.decode("utf-8", errors="replace"), b""
        if self._ended == self._iterations or self._pattern.search(line) is None:
            return
        self._log.record(Span(ITERATION, self._ended, NO_MICROBATCH, self._last_ns, now_ns))
        self._last_ns = now_ns
        self._ended += 1
        with naming(self._path):
            if self._ended == self._iterations:
                self._log.complete()
            else:
                self._log.flush()


class OutputLimitError(Exception):
    """Raised when a program has printed more than it may. The message says how much, where, and what last."""


class BoundedOutput:
    """The file of one stream, which is created or emptied here. Raise OSError if it cannot be."""

    def __init__(self, stream: str, path: Path, limit_bytes: int) -> None:
        self._stream = stream
        self._path = path
        self._limit_bytes = self._left_bytes = limit_bytes
        self._tail = b""
        with naming(path):
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)

    def add(self, printed: bytes) -> None:
        """Append to the file. Raise OutputLimitError beyond the limit, and OSError, naming the file, if it is full."""
        self._tail = (self._tail + printed)[-_TAIL_BYTES:]
        ahead = memoryview(printed)[: self._left_bytes]
        self._left_bytes -= len(printed)
        with naming(self._path):
            while ahead:
                ahead = ahead[os.write(self._file, ahead) :]
        if self._left_bytes < 0:
            # Imported here, because it loads pydantic, which would slow the start of every program.
            from wanbed.ground.units import format_size  # noqa: PLC0415

            limit, line = format_size(self._limit_bytes), self.telling_line()
            raise OutputLimitError(
                f"printed more than {limit} to {self._stream}: {line or 'nothing that can be shown'}"
            )

    def telling_line(self) -> str:
        """Return the line of its end that says best why the program ended, "" if it printed none."""
        return telling_line(self._tail)


_PIPE_BYTES = 2**20

_READ_BYTES = 256 * 2**10


class OutputPipe:
    """A pipe whose end ``writing`` is for the program, until ``close_writing``; what comes out goes to ``output``.

    ``marks``, if there are any, take each line with the time at which it is read, counted from ``epoch_ns``.
    """

    def __init__(self, output: BoundedOutput, marks: IterationMarks | None, epoch_ns: int) -> None:
        self.output = output
        self._marks = marks
        self._epoch_ns = epoch_ns
        self.reading, self.writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reading, False)
        # A user may have no more large pipes: then the program has less room to print while the disk is slow.
        with suppress(OSError):
            fcntl.fcntl(self.reading, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self.ended = False

    def close_writing(self) -> None:
        """Close this process's copy of the program's end, so that the pipe ends with the program's."""
        os.close(self.writing)

    def read(self) -> bool:
        """Read some of what is in the pipe, without waiting, and return whether there was anything.

        ``ended`` is true from the end of the pipe on. Raise OutputLimitError, and OSError naming a file.
        """
        if self.ended:
            return False
        try:
            printed = os.read(self.reading, _READ_BYTES)
        except BlockingIOError:
            return False
        # The time comes before the file: how long the disk takes is not the program's.
        now_ns = time.monotonic_ns() - self._epoch_ns
        if not printed:
            self.ended = True
            if self._marks is not None:
                self._marks.close(now_ns)
            return False
        if self._marks is not None:
            self._marks.add(printed, now_ns)
        self.output.add(printed)
        return True
