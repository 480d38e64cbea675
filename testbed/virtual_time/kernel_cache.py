"""Store built virtual-time kernels in the user's cache, one folder for each configuration and source.

::

    <XDG_CACHE_HOME or ~/.cache>/wanbed/virtual-kernel/<hash>/
        linux          the kernel, a program
        kernel.json    its release, source and configuration

The configuration names the options that are on; all that can be off besides is off: ``make ARCH=um allnoconfig``. Names
are those of Kconfig without the prefix ``CONFIG_``. Kconfig resolves dependencies; the build then checks that every
option here is built in.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from wanbed.ground.errors import MissingError
from wanbed.ground.user_cache import searched_caches, sudo_caller, trusted, user_cache

WANTED = (
    # Without EXPERT, Kconfig would not leave out the block layer, io_uring and the table of symbols.
    *("EXPERT", "64BIT", "NO_IOMEM", "PRINTK", "BUG"),
    # A clock that jumps over idle time, and timers for programs.
    *("UML_TIME_TRAVEL_SUPPORT", "HIGH_RES_TIMERS", "NO_HZ_IDLE", "POSIX_TIMERS", "TIMERFD", "EVENTFD", "EPOLL"),
    # The machine's file system, file systems in memory, and what programs expect under /dev and /proc.
    *("HOSTFS", "TMPFS", "SHMEM", "DEVTMPFS", "DEVTMPFS_MOUNT", "UNIX98_PTYS", "SYSFS", "INOTIFY_USER"),
    *("PROC_FS", "PROC_SYSCTL", "PROC_PAGE_MONITOR", "VM_EVENT_COUNTERS"),
    # Programs, and the system calls that they expect.
    *("BINFMT_ELF", "BINFMT_SCRIPT", "MULTIUSER", "FUTEX", "SIGNALFD", "FILE_LOCKING", "FHANDLE", "SYSVIPC"),
    *("ADVISE_SYSCALLS", "MEMBARRIER", "CROSS_MEMORY_ATTACH"),
    # Emulated hosts.
    *("NAMESPACES", "NET_NS", "UTS_NS", "PID_NS", "USER_NS", "IPC_NS"),
    # Their networks. No host has an IPv6 address, but programs listen on "::".
    *("NET", "INET", "IPV6", "UNIX", "PACKET", "NETDEVICES", "NET_CORE", "VETH"),
    *("INET_DIAG", "INET_TCP_DIAG", "TCP_CONG_ADVANCED", "TCP_CONG_CUBIC", "TCP_CONG_BBR"),
    *("NET_SCHED", "NET_SCH_NETEM", "NET_SCH_HTB", "NET_CLS_BPF"),
    # For listing from outside the processes that wait inside.
    *("MCONSOLE", "MAGIC_SYSRQ", "PRINTK_TIME", "NULL_CHAN"),
    # Speed: every packet costs wall time.
    "INIT_STACK_NONE",
)
"""Built in; nothing is a module."""

WANTED_BEFORE_6_10 = ("BASE_FULL",)
"""Built in where the source has them: later ones have the same without an option."""

COMPILER_OPTIONS = ("-O1",)
"""Options besides the kernel's own: compiling takes less, and a guest is as fast as with -O2.

Where a guest's time goes is in tracing processes, not in the kernel's code.
"""


def configuration() -> str:
    """Return the options in the form of a ``.config`` file."""
    return "".join(f"CONFIG_{option}=y\n" for option in WANTED + WANTED_BEFORE_6_10)


def configuration_hash() -> str:
    """Return a hash of this set of options, the compiler's included."""
    return sha256("\n".join([*sorted(WANTED + WANTED_BEFORE_6_10), *COMPILER_OPTIONS]).encode()).hexdigest()[:16]


PROGRAM, RECORD = "linux", "kernel.json"
REMEDY = "make virtual"
_NAME = "virtual-kernel"


@dataclass(frozen=True)
class KernelRecord:
    """The sources of a kernel; ``clock_address`` is the address in its memory of its clock, in nanoseconds."""

    release: str
    source: str
    configuration_hash: str
    clock_address: int


@dataclass(frozen=True)
class VirtualKernel:
    """A kernel that is ready to boot."""

    program: Path
    record: KernelRecord


def cache_folder() -> Path:
    """Return the folder for the folders of all kernels; it need not exist."""
    return user_cache(_NAME)


def kernel_folder(source: str, root: Path) -> Path:
    """Return the folder of the kernel with this version's options, built from that source."""
    key = sha256(f"{configuration_hash()} {source}".encode()).hexdigest()[:16]
    return root / key


def built_kernels(folders: Sequence[Path] | None = None) -> list[VirtualKernel]:
    """Return the kernels in the first folder that has trusted ones with this version's options, the latest one last."""
    for folder in searched_caches(_NAME) if folders is None else folders:
        if found := [kernel for kernel in _kernels_in(folder) if trusted(kernel.program)]:
            return sorted(found, key=lambda kernel: _version(kernel.record.release))
    return []


def _kernels_in(folder: Path) -> Iterator[VirtualKernel]:
    """Yield the kernels of a folder that have this version's options."""
    for record in folder.glob(f"*/{RECORD}"):
        try:
            kernel = VirtualKernel(record.with_name(PROGRAM), KernelRecord(**json.loads(record.read_text())))
        except (OSError, TypeError, ValueError):
            continue
        if kernel.record.configuration_hash == configuration_hash() and os.access(kernel.program, os.X_OK):
            yield kernel


def virtual_kernel(folders: Sequence[Path] | None = None) -> VirtualKernel:
    """Return the kernel to boot. Raise MissingError if none is built."""
    kernels = built_kernels(folders)
    if not kernels:
        places = " or ".join(map(str, searched_caches(_NAME) if folders is None else folders))
        by_root = "" if sudo_caller() is None else "as root: "
        raise MissingError(f"no virtual-time kernel of this version in {places}: {by_root}{REMEDY}")
    return kernels[-1]


def write_record(folder: Path, record: KernelRecord) -> None:
    """Write the record of the kernel in a folder. Folders without a record are ignored."""
    (folder / RECORD).write_text(json.dumps(asdict(record), indent=2) + "\n")


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in release.partition("-")[0].split("."))
