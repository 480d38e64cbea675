"""Start a process of this command's own, and talk to it through pipes."""

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import IO


class PipedProcess:
    """A process whose standard input and output are pipes of this one.

    It is in a session of its own: a signal to this process's group, such as Ctrl-C, does not reach it.
    """

    def __init__(
        self, argv: list[str], environment: Mapping[str, str], *, stderr: int | IO[bytes], cwd: str | None = None
    ) -> None:
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment,
            cwd=cwd,
            start_new_session=True,
        )
        # The types do not say that both are pipes.
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.stdin, self.stdout = self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int:
        """PID of the process."""
        return self._process.pid

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for its end and return its exit status. Raise subprocess.TimeoutExpired after ``timeout_s``."""
        return self._process.wait(timeout_s)

    def close(self) -> None:
        """Kill it, wait until it is gone, and close the pipes."""
        self._process.kill()
        self._process.wait()
        for stream in (self.stdin, self.stdout):
            # Closing flushes what an ended process has not read.
            with suppress(BrokenPipeError):
                stream.close()
