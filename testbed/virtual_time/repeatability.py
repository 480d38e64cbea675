"""Make two runs in virtual time the same run."""

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
    """Sleep until the clock is at a whole second.

    The kernel keeps TCP's longer timers (delayed acknowledgements, retransmission, idleness) in ticks of 10 ms. Where
    in a tick a trial begins would decide how long they are, and with them, where it is close, whether a connection
    starts slowly again.
    """
    time.sleep((_NS_PER_S - time.monotonic_ns() % _NS_PER_S) / _NS_PER_S)


def use_the_same_addresses() -> None:
    """Give every process that starts from now on the same memory layout: objects' addresses order Python's sets."""
    _ADDRESS_SPACE.write_text("0")


def unseeded(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Python orders sets and hashes text the same way each time."""
    return {**environment, "PYTHONHASHSEED": "0"}


def run_in_order_of_waking() -> None:
    """Let this process, and what it forks, run in the order in which they wake, before all others.

    The kernel's ordinary scheduler goes by how much time each has had, which in virtual time is next to none: chance
    would decide whose packet is the first of those sent at one moment. The kernel's own threads that deliver packets
    come before even those.
    """
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PROGRAMS_PRIORITY))
    for name in Path("/proc").glob("[0-9]*/comm"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if name.read_text().startswith(_DELIVERING_THREADS):
                os.sched_setscheduler(int(name.parent.name), os.SCHED_FIFO, os.sched_param(_DELIVERY_PRIORITY))
