"""Bound the time and the memory that one input may take."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

MOST_SECONDS = 30
"""Of a processor: a machine that has other work to do is slow, which is no finding."""
LONGEST_SECONDS = 4 * MOST_SECONDS
"""Until what neither ends nor computes is stopped."""
MOST_BYTES = 2**30
_HARD_LIMIT_BYTES = 4 * MOST_BYTES
"""Address space is more than memory: allocators reserve it."""
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_FORGET_PEAK = "5"


class TooLongError(BaseException):
    """Raised where the code is when the time is over. No handler of ``Exception`` takes it for a fault of its own."""


@contextmanager
def bounded() -> Iterator[None]:
    """Raise TooLongError in the block after ``LONGEST_SECONDS``, and keep it from taking all memory of the machine."""

    def stop(_: int, __: FrameType | None) -> NoReturn:
        raise TooLongError

    before, limits = signal.signal(signal.SIGALRM, stop), resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_kib("VmSize") * 1024 + _HARD_LIMIT_BYTES, limits[1]))
    signal.setitimer(signal.ITIMER_REAL, LONGEST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGALRM, before)


class Memory:
    """The memory that this process takes from the making of the object on."""

    def __init__(self) -> None:
        _CLEAR.write_text(_FORGET_PEAK, encoding="ascii")
        self._before_kib = _kib("VmRSS")

    def most_bytes(self) -> int:
        """Return how much more it has had at most."""
        return (_kib("VmHWM") - self._before_kib) * 1024


def _kib(field: str) -> int:
    line = next(line for line in _STATUS.read_text(encoding="ascii").splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1])
