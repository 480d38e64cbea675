"""Fit a User-Mode Linux kernel to the machine: memory where it has room, and registers of this processor.

A guest that touches memory for which its folder has no room is killed by its kernel's panic. So its memory is an
unnamed file in a folder with room that may hold programs.

A User-Mode Linux before Linux 6.13 was compiled for 2,696 bytes of extended register state (XSAVE). It reads and
restores that much of each of its processes through ptrace. To read a part is allowed. To write a part is not: on a
processor with more, such as any with AMX, the machine's kernel refuses (EFAULT), the first process inside ends, and
with it the guest.

So the size that is written is set in a copy of the kernel, wherever it is written: the only change. The bytes behind
the first 2,696 are those of registers that a process without a permission for AMX never has in use, and its state says
so (XSTATE_BV): the machine's kernel ignores them, whatever they are.
"""

import ctypes
import hashlib
import os
import re
import resource
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from wanbed.ground.errors import MissingError
from wanbed.ground.user_cache import user_cache

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


_ATTACH, _GET_REGISTERS = 16, 0x4204
_EXTENDED_STATE = 0x202
"""PTRACE_ATTACH, PTRACE_GETREGSET and NT_X86_XSTATE of Linux's ptrace.h and elf.h."""
_LARGEST_BYTES = 2**16


class _Buffer(ctypes.Structure):
    """``struct iovec``: where the kernel writes to, and how many bytes at most; it sets how many it wrote."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@cache
def register_state_bytes() -> int | None:
    """Return the size of the extended register state of a process here, None if it cannot be asked for.

    It depends on the processor: 2,696 bytes with AVX-512, 11,008 with AMX.
    """
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes, ptrace.restype = [ctypes.c_long] * 4, ctypes.c_long
    with _waiting_process() as pid:
        if ptrace(_ATTACH, pid, 0, 0) != 0:
            return None
        os.waitpid(pid, 0)
        room = ctypes.create_string_buffer(_LARGEST_BYTES)
        buffer = _Buffer(ctypes.addressof(room), _LARGEST_BYTES)
        got = ptrace(_GET_REGISTERS, pid, _EXTENDED_STATE, ctypes.addressof(buffer))
        return int(buffer.length) if got == 0 else None


@contextmanager
def _waiting_process() -> Iterator[int]:
    """Yield a process that does nothing, and end it."""
    pid = os.posix_spawnp("sleep", ["sleep", "60"], os.environ)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


COMPILED_FOR_BYTES = 2696
_SIZE = struct.Struct("<I")
_SET_REGISTERS = _SIZE.pack(0x4205)
"""PTRACE_SETREGSET, the request that writes."""
_WRITTEN_SIZE = re.compile(
    re.escape(_SIZE.pack(COMPILED_FOR_BYTES)) + rb"(?=.{0,24}?" + re.escape(_SET_REGISTERS) + rb")", re.DOTALL
)
"""The size as the operand of an instruction, shortly before the request becomes one."""


def fitted_kernel(kernel: Path) -> Path:
    """Return ``kernel``, or if it cannot restore this processor's registers a copy in the user's cache that can.

    A kernel that has no such size asks the machine for it, and is returned as it is. Raise MissingError if the cache
    cannot be written.
    """
    size = register_state_bytes()
    if size is None or size <= COMPILED_FOR_BYTES:
        return kernel
    image = kernel.read_bytes()
    fitted = with_written_size(image, size)
    if fitted is None:
        return kernel
    name = hashlib.sha256(fitted).hexdigest()[:16]
    copy = user_cache("user-mode-linux") / name / kernel.name
    if not copy.is_file():
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
            # Several processes may make it at the same time: each in a folder of its own, and any may be the last.
            with TemporaryDirectory(dir=copy.parent) as work:
                made = Path(work) / kernel.name
                made.write_bytes(fitted)
                made.chmod(0o755)
                made.replace(copy)
        except OSError as fault:
            raise MissingError(
                f"{copy}: {fault.strerror}: name a folder that can be written in XDG_CACHE_HOME"
            ) from None
    return copy


def with_written_size(image: bytes, size: int) -> bytes | None:
    """Return a kernel's program that writes ``size`` bytes of register state, None if it has no place for the size.

    A compiler may have made one place of it, or one for each function that writes.
    """
    fitted, places = _WRITTEN_SIZE.subn(lambda _: _SIZE.pack(size), image)
    return fitted if places else None
