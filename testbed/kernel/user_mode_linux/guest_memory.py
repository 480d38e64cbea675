"""Find where a guest's memory may be: an unnamed file in a folder with room, which holds programs.

A guest that touches memory for which its folder has no room is killed by its kernel's panic.
"""

import os
import resource
from pathlib import Path

from wanbed.testbed.kernel.missing import MissingError

_MIB = 2**20
_BESIDE_BYTES = 256 * _MIB
"""The bytes that a guest's kernel maps beside its memory; they count where a process's address space is limited."""
_PART = 3, 4
"""Fraction of the free memory for the guest, which uses only the pages it touches; the rest is for other programs."""


class GuestMemoryError(MissingError):
    """No folder has enough memory for a guest; ``reason`` names what each has, ``remedy`` what helps."""

    def __init__(self, guest: str, least_bytes: int, tried: list[str]) -> None:
        needed_mib = least_bytes * _PART[1] // _PART[0] // _MIB
        self.reason = f"{guest} takes {needed_mib} MiB of memory: {'; '.join(tried)}"
        self.remedy = (
            f"make room, in a container by docker run --shm-size={needed_mib}m, or name another folder in TMPDIR"
        )
        super().__init__(f"{self.reason}: {self.remedy}")


def memory_for_guest(guest: str, wanted_bytes: int, least_bytes: int) -> tuple[Path, int]:
    """Return the best folder for a guest's memory, and its size in bytes.

    Raise GuestMemoryError if none has enough, MissingError if a process may not map so much.
    """
    available_bytes = _available_memory_bytes()
    mapped_bytes = _mappable_bytes(wanted_bytes)
    if mapped_bytes < least_bytes:
        least_mib = (least_bytes + _BESIDE_BYTES) // _MIB
        limit_mib = (mapped_bytes + _BESIDE_BYTES) // _MIB
        raise MissingError(f"{guest} maps {least_mib} MiB, and ulimit -v allows {limit_mib}: raise it")
    tried = []
    for folder in _memory_folders():
        try:
            state = os.statvfs(folder)
        except OSError:
            continue
        if state.f_flag & os.ST_NOEXEC or not os.access(folder, os.W_OK | os.X_OK):
            tried.append(f"{folder} cannot be written, or holds no programs")
            continue
        free_bytes = min(state.f_bavail * state.f_frsize, available_bytes)
        granted_bytes = min(wanted_bytes, free_bytes * _PART[0] // _PART[1], mapped_bytes)
        if granted_bytes >= least_bytes:
            return folder, granted_bytes
        tried.append(f"{folder} has {free_bytes // _MIB} MiB to spare")
    raise GuestMemoryError(guest, least_bytes, tried)


def _mappable_bytes(wanted_bytes: int) -> int:
    """Return how much of the wanted memory a process may map beside what else it has."""
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    return wanted_bytes if limit_bytes == resource.RLIM_INFINITY else min(wanted_bytes, limit_bytes - _BESIDE_BYTES)


def _memory_folders() -> list[Path]:
    """Return the folders to try, each once: those in memory before those on disk."""
    chosen = os.environ.get("TMPDIR")
    folders = [Path("/dev/shm"), *([Path(chosen)] if chosen else []), Path("/tmp"), Path("/var/tmp")]  # noqa: S108
    return list(dict.fromkeys(folders))


def _available_memory_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
