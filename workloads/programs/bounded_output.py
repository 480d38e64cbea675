"""Save what a program prints to one of its standard streams, up to a limit, and keep the end of it in memory."""

import os
from pathlib import Path

from wanbed.ground.files.atomic_write import naming
from wanbed.workloads.programs.stderr_tail import TAIL_BYTES, telling_line


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
        self._tail = (self._tail + printed)[-TAIL_BYTES:]
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
