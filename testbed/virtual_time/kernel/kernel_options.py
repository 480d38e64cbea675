"""List the options of the virtual-time kernel. All that can be off besides is off: ``make ARCH=um allnoconfig``.

Names are those of Kconfig without the prefix ``CONFIG_``. Kconfig resolves dependencies; the build then checks that
every option here is built in.
"""

from hashlib import sha256

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
