"""Choose a virtual-time guest's place on the machine: the core it is pinned to, and the memory it may use."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from secrets import choice

from wanbed.testbed.kernel.user_mode_linux import memory_for_guest

_GIB = 2**30
_WANTED_MEMORY_BYTES, _LEAST_MEMORY_BYTES = 6 * _GIB, _GIB
_LOOK_S = 0.1

LEAST_OPEN_FILES, OPEN_FILES = 256, 16_384
"""A guest's kernel holds open every file that a process inside has open or mapped."""

_MAP_COUNT = Path("/proc/sys/vm/max_map_count")
WANTED_MAP_COUNT = 1_048_576
"""Each page of a process inside may need its own mapping outside: this is 4 GiB per process."""


@dataclass(frozen=True)
class GuestPlace:
    """The place of a guest. ``memory_folder`` holds the guest's memory in an unnamed file."""

    core: int
    memory_bytes: int
    memory_folder: Path


def choose_place() -> GuestPlace:
    """Choose the least busy core that this process may use, and as much memory as a large run needs, if available.

    On one core, the guest's kernel and the processes that it traces take turns without waking each other across cores,
    which halves the wall time. Raise MissingError if there is too little memory.
    """
    folder, memory_bytes = memory_for_virtual_time()
    return GuestPlace(least_busy_core(), memory_bytes, folder)


def least_busy_core() -> int:
    """Return the core with the most idle time in the next 0.1 s among those that this process may use.

    Choose at random among equal cores.
    """
    allowed = os.sched_getaffinity(0)
    if len(allowed) == 1:
        return next(iter(allowed))
    before = idle_ticks(Path("/proc/stat").read_text())
    time.sleep(_LOOK_S)
    after = idle_ticks(Path("/proc/stat").read_text())
    idle = {core: after.get(core, 0) - before.get(core, 0) for core in allowed}
    return choice([core for core in allowed if idle[core] == max(idle.values())])


def idle_ticks(stat: str) -> dict[int, int]:
    """Return the idle ticks of every core, from the text of ``/proc/stat``."""
    lines = (line.split() for line in stat.splitlines())
    return {
        int(words[0][3:]): int(words[4]) for words in lines if words and words[0][:3] == "cpu" and words[0] != "cpu"
    }


def memory_for_virtual_time() -> tuple[Path, int]:
    """Return the folder for a guest's memory, and its size in bytes. Raise MissingError if none has enough."""
    return memory_for_guest("virtual time", _WANTED_MEMORY_BYTES, _LEAST_MEMORY_BYTES)


def map_count_advice(path: Path = _MAP_COUNT) -> str | None:
    """Return one line about this machine's limit on the memory of a process inside, and how root can raise it.

    Return None if the limit is high enough.
    """
    now = int(path.read_text())
    if now >= WANTED_MAP_COUNT:
        return None
    return (
        f"vm.max_map_count is {now}, so that a process in virtual time may have {now * 4096 >> 20} MiB; for more, as "
        f"root: sysctl vm.max_map_count={WANTED_MAP_COUNT}"
    )


def raise_map_count(path: Path = _MAP_COUNT) -> None:
    """Raise that limit to ``WANTED_MAP_COUNT`` if this user may (root), until the machine restarts."""
    if map_count_advice(path) is not None and os.access(path, os.W_OK):
        path.write_text(str(WANTED_MAP_COUNT))
