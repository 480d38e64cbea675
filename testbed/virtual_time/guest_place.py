"""Choose a virtual-time guest's place on the machine: the core it is pinned to, and the memory it may use."""

import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

from testbed.kernel.missing import MissingError

_GIB = 2**30
WANTED_MEMORY_BYTES, LEAST_MEMORY_BYTES = 6 * _GIB, _GIB
_MEMORY_PARTS = 3, 4
"""Fraction of the free memory for the guest, which uses only the pages it touches; the rest is for other programs."""
_LOOK_S = 0.1

MAP_COUNT = Path("/proc/sys/vm/max_map_count")
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
    folder, memory_bytes = memory_for_guest()
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
    return max(allowed, key=lambda core: (after.get(core, 0) - before.get(core, 0), random.random()))  # noqa: S311


def idle_ticks(stat: str) -> dict[int, int]:
    """Return the idle ticks of every core, from the text of ``/proc/stat``."""
    lines = (line.split() for line in stat.splitlines())
    return {
        int(words[0][3:]): int(words[4]) for words in lines if words and words[0][:3] == "cpu" and words[0] != "cpu"
    }


def memory_for_guest() -> tuple[Path, int]:
    """Return the best folder for a guest's memory, and its size in bytes. Raise MissingError if none has enough."""
    available_bytes = _available_memory_bytes()
    tried = []
    for folder in _memory_folders():
        try:
            state = os.statvfs(folder)
        except OSError:
            continue
        if state.f_flag & os.ST_NOEXEC or not os.access(folder, os.W_OK | os.X_OK):
            tried.append(f"{folder} holds no programs")
            continue
        free_bytes = min(state.f_bavail * state.f_frsize, available_bytes)
        granted_bytes = min(WANTED_MEMORY_BYTES, free_bytes * _MEMORY_PARTS[0] // _MEMORY_PARTS[1])
        if granted_bytes >= LEAST_MEMORY_BYTES:
            return folder, granted_bytes
        tried.append(f"{folder} has {free_bytes // 2**20} MiB to spare")
    raise MissingError(
        f"virtual time takes {LEAST_MEMORY_BYTES * _MEMORY_PARTS[1] // _MEMORY_PARTS[0] // 2**20} MiB of memory: "
        f"{'; '.join(tried)}: make room, or name another folder in TMPDIR"
    )


def _memory_folders() -> list[Path]:
    """Return the folders to try: those in memory before those on disk."""
    chosen = os.environ.get("TMPDIR")
    return [Path("/dev/shm"), *([Path(chosen)] if chosen else []), Path("/tmp"), Path("/var/tmp")]  # noqa: S108


def _available_memory_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def map_count_advice(path: Path = MAP_COUNT) -> str | None:
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


def raise_map_count(path: Path = MAP_COUNT) -> None:
    """Raise that limit to ``WANTED_MAP_COUNT`` if this user may (root), until the machine restarts."""
    if map_count_advice(path) is not None and os.access(path, os.W_OK):
        path.write_text(str(WANTED_MAP_COUNT))
