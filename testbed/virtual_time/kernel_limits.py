"""Lift kernel-wide limits of the virtual-time guest. All its hosts share them; real hosts would each have their own."""

import os
from pathlib import Path

_SYSCTLS = Path("/proc/sys/net")

_BACKLOG_PACKETS = 2**20


def lift_kernel_limits() -> None:
    """Raise limits so that no packet is lost except as the topology configures.

    TCP connections together may use all memory. By default they may use about a tenth, 180 MB of 2 GB, and the kernel
    drops packets beyond that; a link of 5 Gbit/s and 40 ms has 25 MB in flight in each direction. A processor's packet
    queue, 1000 packets by default, must hold a sender's whole window, because it is sent at one moment.
    """
    pages = os.sysconf("SC_PHYS_PAGES")
    (_SYSCTLS / "ipv4/tcp_mem").write_text(f"{pages} {pages} {pages}")
    (_SYSCTLS / "core/netdev_max_backlog").write_text(str(_BACKLOG_PACKETS))
