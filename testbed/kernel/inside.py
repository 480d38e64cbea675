"""Detect whether this process runs in virtual time."""

from functools import cache
from pathlib import Path

TIME_TRAVEL = "time-travel=inf-cpu"
"""Kernel option of the virtual-time guest: computation takes no time; when all are idle, the clock jumps ahead."""


@cache
def in_virtual_time(command_line: Path = Path("/proc/cmdline")) -> bool:
    """Return whether this process runs on a kernel that was started in virtual time.

    In virtual time a loop that waits without sleeping never ends, and an operation that nothing limits takes no time.
    """
    return TIME_TRAVEL in command_line.read_text(encoding="utf-8").split()
