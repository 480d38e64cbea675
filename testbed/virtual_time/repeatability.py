"""Make runs in virtual time repeatable, without any loss of packets that the topology does not configure."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_NS_PER_S = 1_000_000_000
_PROGRAMS_PRIORITY, _DELIVERY_PRIORITY = 1, 2
_DELIVERING_THREADS = "ksoftirqd/"
_ADDRESS_SPACE = Path("/proc/sys/kernel/randomize_va_space")


def wait_for_whole_second() -> None:
    """Sleep until the clock is at a whole second, so that every trial starts at the same point of a kernel tick.

    The kernel keeps TCP's longer timers (delayed acknowledgements, retransmission, idleness) in ticks of 10 ms. The
    position in a tick at which a trial begins affects their length, and so, in borderline cases, whether a connection
    returns to slow start.
    """
    time.sleep((_NS_PER_S - time.monotonic_ns() % _NS_PER_S) / _NS_PER_S)


def use_the_same_addresses() -> None:
    """Give every process started from now on the same memory layout, because addresses order Python's sets."""
    _ADDRESS_SPACE.write_text("0")


def unseeded(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Python hashes text, and so orders sets, the same way each time."""
    return {**environment, "PYTHONHASHSEED": "0"}


def run_in_order_of_waking() -> None:
    """Schedule this process and its forks in the order of their waking, before all other processes.

    The ordinary scheduler orders processes by the CPU time they have had, which is almost zero in virtual time: chance
    would decide the order of packets sent at the same moment. The kernel's threads that deliver packets get a still
    higher priority.
    """
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PROGRAMS_PRIORITY))
    for name in Path("/proc").glob("[0-9]*/comm"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if name.read_text().startswith(_DELIVERING_THREADS):
                os.sched_setscheduler(int(name.parent.name), os.SCHED_FIFO, os.sched_param(_DELIVERY_PRIORITY))


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
