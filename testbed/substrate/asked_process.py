"""Ask a process that carries a network: each request is a line, and so is its answer, in JSON."""

import json
import math
import os
import selectors
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wanbed.testbed.claims.piped_process import PipedProcess
from wanbed.testbed.substrate.substrate import SubstrateError


class AskedProcess:
    """A process that runs until ``close``; ``name`` is its name in errors.

    Its standard error goes to the file ``log``, and so do lines on its standard output that are no answers. While it is
    silent it gets an empty line every ``nudge_s`` seconds, which it may answer by an empty line.
    """

    def __init__(
        self,
        name: str,
        argv: list[str],
        environment: Mapping[str, str],
        log: Path,
        *,
        cwd: str | None = None,
        nudge_s: float = math.inf,
    ) -> None:
        self._name = name
        self._log = log
        self._nudge_s = nudge_s
        self._pending = b""
        self._one_at_a_time = threading.Lock()
        with log.open("wb") as stderr:
            self._process = PipedProcess(argv, environment, stderr=stderr, cwd=cwd)

    @property
    def pid(self) -> int:
        """PID of the process."""
        return self._process.pid

    def ask(self, request: str, patience_s: float) -> dict[str, Any]:
        """Send a request and return its answer, from any thread. Raise SubstrateError if there is none."""
        with self._one_at_a_time:
            self._send(request)
            return self.answer(patience_s)

    def answer(self, patience_s: float) -> dict[str, Any]:
        """Return the next answer, which may be to no request. Raise SubstrateError if none comes in ``patience_s``."""
        deadline_s = time.monotonic() + patience_s
        while not (line := self._next_line(deadline_s, patience_s)).startswith(b"{"):
            with self._log.open("ab") as log:
                log.write(line + b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Kill the process, and wait until it is gone."""
        self._process.close()

    def _send(self, line: str) -> None:
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._fault("ended") from None

    def _next_line(self, deadline_s: float, patience_s: float) -> bytes:
        """Return the next line that is not empty."""
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            # Empty lines answer empty requests, also earlier ones.
            while b"\n" not in (pending := self._pending.lstrip(b"\n")):
                left_s = deadline_s - time.monotonic()
                if ready.select(max(0.0, min(left_s, self._nudge_s))):
                    data = os.read(self._process.stdout.fileno(), 1 << 20)
                    if not data:
                        raise self._fault("ended")
                    self._pending = pending + data
                elif left_s > self._nudge_s:
                    self._send("")
                else:
                    raise self._fault(f"did not answer within {patience_s:.0f} s")
        line, _, self._pending = pending.partition(b"\n")
        return line

    def _fault(self, what: str) -> SubstrateError:
        log = self._log.read_text(errors="replace").strip().splitlines()
        # A kernel that panics has more to say after it.
        panic = next((line for line in log if "Kernel panic" in line), None)
        return SubstrateError(f"{self._name} {what}; its stderr tail: {panic or (log[-1] if log else 'empty')}")
