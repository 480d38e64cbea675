"""Read one standard stream of a program through a pipe, into its file and its marks of iterations."""

import fcntl
import os
import time
from contextlib import suppress

from wanbed.workloads.programs.bounded_output import BoundedOutput
from wanbed.workloads.programs.iteration_marks import IterationMarks

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
