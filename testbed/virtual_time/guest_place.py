"""Choose where on the machine a guest runs: the core it is pinned to, and the memory it may take."""

import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

from testbed.kernel.missing import MissingError

_GIB = 2**30
WANTED_MEMORY_BYTES, LEAST_MEMORY_BYTES = 6 * _GIB, _GIB
_MEMORY_PARTS = 3, 4
"""Of what is free: the guest takes only what it touches, and the machine has other things to do."""
_LOOK_S = 0.1

MAP_COUNT = Path("/proc/sys/vm/max_map_count")
WANTED_MAP_COUNT = 1_048_576
"""Every page that a process inside touches may be a mapping of its own on the outside: this is 4 GiB a process."""


@dataclass(frozen=True)
class GuestPlace:
    """The place of a guest. ``memory_folder`` holds the guest's memory, as a file that has no name."""

    core: int
    memory_bytes: int
    memory_folder: Path


def choose_place() -> GuestPlace:
    """Choose the least busy core that this process may use, and as much memory as a large run needs, if it is there.

    Pinned to one core, the guest's kernel and the processes that it traces take turns without waking each other across
    cores, which halves the wall time. Raises MissingError where there is too little memory.
    """
    folder, memory_bytes = memory_for_guest()
    return GuestPlace(least_busy_core(), memory_bytes, folder)


def least_busy_core() -> int:
    """Return the least busy core that this process may use, by what the cores did in the last moment.

    Among equal cores it is a random one.
    """
    allowed = os.sched_getaffinity(0)
    if len(allowed) == 1:
        return next(iter(allowed))
    before = idle_ticks(Path("/proc/stat").read_text())
    time.sleep(_LOOK_S)
    after = idle_ticks(Path("/proc/stat").read_text())
    return max(allowed, key=lambda core: (after.get(core, 0) - before.get(core, 0), random.random()))  # noqa: S311


def idle_ticks(stat: str) -> dict[int, int]:
    """Return the idle time of every core, from the text of ``/proc/stat``."""
    lines = (line.split() for line in stat.splitlines())
    return {
        int(words[0][3:]): int(words[4]) for words in lines if words and words[0][:3] == "cpu" and words[0] != "cpu"
    }


def memory_for_guest() -> tuple[Path, int]:
    """Return where a guest's memory lies best, and how much of it there may be. Raises MissingError."""
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
    """Return the folders to try, memory before disks."""
    asked = os.environ.get("TMPDIR")
    return [Path("/dev/shm"), *([Path(asked)] if asked else []), Path("/tmp"), Path("/var/tmp")]  # noqa: S108


def _available_memory_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def map_count_advice(path: Path = MAP_COUNT) -> str | None:
    """Describe what a process inside cannot have on this machine and what root can do about it, in one line.

    None if there is nothing that it cannot have.
    """
    now = int(path.read_text())
    if now >= WANTED_MAP_COUNT:
        return None
    return (
        f"vm.max_map_count is {now}, so that a process in virtual time may have {now * 4096 >> 20} MiB; for more, as "
        f"root: sysctl vm.max_map_count={WANTED_MAP_COUNT}"
    )


def raise_map_count(path: Path = MAP_COUNT) -> None:
    """Let processes inside be larger than that, where this user may: root.

    It stays so until the machine restarts.
    """
    if map_count_advice(path) is not None and os.access(path, os.W_OK):
        path.write_text(str(WANTED_MAP_COUNT))
