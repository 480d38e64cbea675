"""Find out whether this process lives in virtual time."""

from functools import cache
from pathlib import Path

TIME_TRAVEL = "time-travel=inf-cpu"
"""The guest kernel's option: computation takes no time, and the clock jumps to the next timer when all are idle."""


@cache
def in_virtual_time(command_line: Path = Path("/proc/cmdline")) -> bool:
    """Return whether the kernel that this process runs on was started in virtual time.

    There a loop that waits for time to pass without sleeping never ends, and what nothing limits takes no time at all.
    """
    return TIME_TRAVEL in command_line.read_text(encoding="utf-8").split()
