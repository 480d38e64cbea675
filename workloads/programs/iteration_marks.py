"""Record the iterations of a program whose standard output marks them, in a span log."""

import re
from pathlib import Path

from wanbed.ground.files.atomic_write import naming
from wanbed.results.records.span_log import ITERATION, NO_MICROBATCH, Span, SpanLog, SpanLogHeader

_MAX_LINE_BYTES = 16 * 2**10
"""The pattern is searched for in so much of a line; a program may print without ever ending a line."""


class IterationMarks:
    """The span log of one program. Each line in which ``pattern`` is found ends an iteration, up to ``iterations``.

    A carriage return ends a line too, as of a progress bar that writes over itself.

    The first iteration begins now, at ``began_ns``, each other one where the one before ended. The log is complete with
    the last iteration, whatever the program prints after it.
    """

    def __init__(self, path: Path, header: SpanLogHeader, pattern: str, iterations: int, began_ns: int) -> None:
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
