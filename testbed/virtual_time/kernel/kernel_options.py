"""List the options of the virtual-time kernel that differ from ``make ARCH=um defconfig``.

Names are those of Kconfig without the prefix ``CONFIG_``. Kconfig resolves dependencies; the build then checks that
every option here has the wanted value.
"""

from hashlib import sha256

WANTED = (
    # A clock that jumps over idle time, and timers for programs.
    *("UML_TIME_TRAVEL_SUPPORT", "HIGH_RES_TIMERS", "POSIX_TIMERS", "TIMERFD", "EVENTFD", "EPOLL"),
    # The machine's file system, file systems in memory, and what programs expect under /dev and /proc.
    *("HOSTFS", "TMPFS", "DEVTMPFS", "DEVTMPFS_MOUNT", "UNIX98_PTYS", "PROC_FS", "SYSFS", "MULTIUSER", "INOTIFY_USER"),
    # Emulated hosts.
    *("NAMESPACES", "NET_NS", "UTS_NS", "PID_NS", "USER_NS", "IPC_NS", "CGROUPS"),
    # Their networks.
    *("NET", "INET", "IPV6", "UNIX", "PACKET", "VETH", "DUMMY", "IFB", "BRIDGE", "TLS"),
    *("INET_DIAG", "INET_TCP_DIAG", "TCP_CONG_ADVANCED", "TCP_CONG_CUBIC", "TCP_CONG_BBR"),
    *("NET_SCHED", "NET_SCH_NETEM", "NET_SCH_HTB", "NET_SCH_TBF", "NET_SCH_FQ", "NET_SCH_FQ_CODEL"),
    *("NET_CLS_U32", "NET_CLS_FLOWER", "NET_CLS_BPF", "NET_CLS_ACT", "NET_ACT_MIRRED", "BPF_SYSCALL"),
    # For listing from outside the processes that wait inside.
    *("MCONSOLE", "MAGIC_SYSRQ", "PRINTK_TIME"),
    # Speed: every packet costs wall time.
    *("CC_OPTIMIZE_FOR_PERFORMANCE", "INIT_STACK_NONE"),
)
"""Built in; nothing is a module."""

UNWANTED = (
    *("MODULES", "DEBUG_KERNEL", "GCOV", "WERROR", "DEBUG_INFO", "DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT"),
    *("CC_OPTIMIZE_FOR_SIZE", "INIT_STACK_ALL_ZERO"),
    # Devices and file systems that a guest without disks does not need.
    *("BLK_DEV", "BLK_DEV_UBD", "MQ_IOSCHED_DEADLINE", "MQ_IOSCHED_KYBER", "IOSCHED_BFQ", "EXT4_FS", "REISERFS_FS"),
    *("ISO9660_FS", "QUOTA", "AUTOFS4_FS", "AUTOFS_FS", "USB_SUPPORT", "INPUT_KEYBOARD", "INPUT_MOUSE", "SERIO", "HID"),
    *("SOUND", "WIRELESS", "WLAN", "ETHERNET", "PPP", "SLIP", "UML_NET", "UML_NET_VECTOR", "XTERM_CHAN", "PORT_CHAN"),
    *("IPV6_SIT", "SUSPEND", "CRYPTO_HW", "FTRACE", "RUNTIME_TESTING_MENU", "LEGACY_PTYS", "VIRTIO_MENU", "VHOST_MENU"),
)
"""Left out, so that the build takes only minutes."""


def configuration_hash() -> str:
    """Return a hash of this set of options."""
    return sha256("\n".join([*sorted(WANTED), "", *sorted(UNWANTED)]).encode()).hexdigest()[:16]
