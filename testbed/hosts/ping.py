"""Measure round-trip times between two hosts with ``ping``."""

import math
import re
import statistics
import subprocess
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from wanbed.ground.errors import WanbedError
from wanbed.testbed.kernel.inside import in_virtual_time

_PING_INTERVAL_S, _PING_INTERVAL_VIRTUAL_S = 0.002, 1.0
"""Interval of echo requests. In virtual time it is long enough for a link of 9600 bit/s to have sent the one before."""
PATIENCE_S = 20.0


class PrintingProgram(Protocol):
    """The part of ``subprocess.Popen`` with a text output that measurements use."""

    @property
    def stdout(self) -> Iterable[str] | None:
        """The lines that it prints."""

    def communicate(self, *, timeout: float | None = None) -> tuple[str, Any]:
        """Wait for the end and return what was printed. Raise subprocess.TimeoutExpired after ``timeout`` seconds."""

    def kill(self) -> None:
        """Send SIGKILL, if it still runs."""

    def __enter__(self) -> Any:
        """Return the program."""

    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> None:
        """Wait for its end."""


Spawn = Callable[..., PrintingProgram]
"""A function that starts a program on a host, like ``Testbed.spawn``."""

_REPLY = re.compile(r"time=([0-9.]+) ms")
_SENT = re.compile(r"(\d+) packets transmitted")


class MeasurementError(WanbedError):
    """A measuring program failed; the message is one line with the two hosts and the program's error."""


_PING_FRAME_BYTES = 98
"""An echo request of ping's default size as an Ethernet frame, and its reply."""


@dataclass(frozen=True)
class PingResult:
    """The number of echo requests sent, and the RTTs of those answered. Statistics of no RTTs are NaN.

    Requests and replies are frames of ``frame_bytes``.
    """

    sent: int
    times_ms: tuple[float, ...]
    frame_bytes: int = _PING_FRAME_BYTES

    @property
    def lost(self) -> float:
        """The fraction of unanswered requests."""
        return 1 - len(self.times_ms) / self.sent

    @property
    def shortest_ms(self) -> float:
        """The shortest round-trip time."""
        return min(self.times_ms, default=math.nan)

    @property
    def median_ms(self) -> float:
        """The median round-trip time."""
        return statistics.median(self.times_ms) if self.times_ms else math.nan

    @property
    def deviation_ms(self) -> float:
        """The standard deviation of round-trip times."""
        if not self.times_ms:
            return math.nan
        mean = sum(self.times_ms) / len(self.times_ms)
        return math.sqrt(sum((time - mean) ** 2 for time in self.times_ms) / len(self.times_ms))


def parse_ping(output: str) -> PingResult:
    """Parse the output of ``ping``. Raise ValueError with its last line if nothing was sent."""
    sent = _SENT.search(output)
    if sent is None or int(sent.group(1)) == 0:
        raise ValueError(with_stderr_tail("ping sent nothing", output))
    return PingResult(int(sent.group(1)), tuple(sorted(float(found) for found in _REPLY.findall(output))))


def with_stderr_tail(what: str, output: str) -> str:
    """Return ``what`` with the last line of a program's output, if there is one."""
    lines = output.strip().splitlines()
    return f"{what}: {lines[-1]}" if lines else what


def ping(spawn: Spawn, source: str, destination: str, count: int = 30) -> PingResult:
    """Send ``count`` echo requests, 2 ms apart (1 s in virtual time). Raise MeasurementError if ping fails."""
    interval_s = _PING_INTERVAL_VIRTUAL_S if in_virtual_time() else _PING_INTERVAL_S
    argv = ["ping", "-n", "-c", str(count), "-i", str(interval_s), "-W", "2", destination]
    patience = count * interval_s + PATIENCE_S
    with ExitStack() as running:
        process = start(running, spawn, source, argv)
        try:
            output, _ = process.communicate(timeout=patience)
            return parse_ping(output)
        except subprocess.TimeoutExpired:
            raise MeasurementError(f"{source} to {destination}: ping hung for {patience:.0f} s") from None
        except ValueError as fault:
            raise MeasurementError(f"{source} to {destination}: {fault}") from None


def start(running: ExitStack, spawn: Spawn, host: str, argv: list[str]) -> PrintingProgram:
    """Start a program on a host; it is killed when the stack ``running`` is closed."""
    process = spawn(host, argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    running.enter_context(process)
    running.callback(process.kill)
    return process
