"""Lift limits of a guest kernel as a whole, which all its hosts share where real hosts would each have their own."""

import os
from pathlib import Path

_SYSCTLS = Path("/proc/sys/net")
_BACKLOG_PACKETS = 2**20


def lift_kernel_limits() -> None:
    """Let no packet be lost for any reason but those of the topology.

    TCP's connections together may take all the memory there is: a kernel gives them a tenth of a small one, and drops
    packets beyond, 180 MB of 2 GB, where links of 5 Gbit/s and 40 ms hold 25 MB each way. And a processor's queue of
    packets, of which a kernel keeps 1000, takes what a sender has a window for: all of it is sent at one moment.
    """
    pages = os.sysconf("SC_PHYS_PAGES")
    (_SYSCTLS / "ipv4/tcp_mem").write_text(f"{pages} {pages} {pages}")
    (_SYSCTLS / "core/netdev_max_backlog").write_text(str(_BACKLOG_PACKETS))
