"""Measure the CPU load of the machine and of processes, and keep idle processors awake while packets are timed.

An emulated network is only as fast as the cores that carry it. A processor that sleeps takes 0.1 to 0.5 ms to wake up,
more the longer it slept, and a packet waits for several of them on its way. The kernel's documentation calls the
interface ``power/pm_qos_interface``: while a process holds ``/dev/cpu_dma_latency`` open, no idle state is entered
whose exit takes longer than the microseconds written to it. The request ends with the process at the latest.
"""

import os
import struct
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE_FIELDS = (3, 4)
"""Fields of the ``cpu`` line: idle, and waiting for disks."""
_PARENT_FIELD, _CPU_TIME_FIELDS = 1, (11, 12, 13, 14)
"""Fields of a process's ``stat`` after its name: user and system time, of itself and of the children it has reaped."""


@dataclass(frozen=True)
class CpuTimes:
    """Total and idle time of all cores since the machine started, in ticks of the kernel."""

    total_ticks: int
    idle_ticks: int

    def busy_since(self, before: "CpuTimes") -> float | None:
        """Return the busy fraction of all cores since ``before``; None if no tick has passed."""
        passed = self.total_ticks - before.total_ticks
        return None if passed <= 0 else 1 - (self.idle_ticks - before.idle_ticks) / passed


def parse_cpu_times(stat: str) -> CpuTimes:
    """Parse the first line of /proc/stat. Guest time is counted once: the kernel includes it in user time.

    Raise ValueError if it is not such a line.
    """
    words = stat.split("\n", 1)[0].split()
    if words[:1] != ["cpu"] or len(words) < 9:
        raise ValueError(f"{_STAT}: its first line is {stat[:60]!r}")
    ticks = [int(field) for field in words[1:9]]
    return CpuTimes(sum(ticks), sum(ticks[index] for index in _IDLE_FIELDS))


def read_cpu_times() -> CpuTimes:
    """Read the current times."""
    return parse_cpu_times(_STAT.read_text())


def process_tree_cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process and its descendants have used. Ended processes count once reaped.

    A process that ends while it is read counts as zero.
    """
    return sum(_process_tree_ticks(pid).values()) / os.sysconf("SC_CLK_TCK")


def process_tree(pid: int) -> list[int]:
    """Return the PIDs of a process and its descendants."""
    return list(_process_tree_ticks(pid))


def _process_tree_ticks(pid: int) -> dict[int, int]:
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name, in brackets, may contain spaces and brackets.
            words = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks[int(entry.name)] = sum(int(words[index]) for index in _CPU_TIME_FIELDS)
        children[int(words[_PARENT_FIELD])].append(int(entry.name))
    counted, found = {}, [pid]
    while found:
        each = found.pop()
        counted[each] = ticks.get(each, 0)
        found += children[each]
    return counted


_DEVICE = Path("/dev/cpu_dma_latency")
_AT_ONCE_US = 0


@contextmanager
def prompt_wakeups(device: Path = _DEVICE) -> Iterator[bool]:
    """Keep every processor awake inside the block; yield whether the kernel does so, which takes root."""
    try:
        request = os.open(device, os.O_WRONLY)
    except OSError:
        yield False
        return
    try:
        os.write(request, struct.pack("i", _AT_ONCE_US))
        yield True
    finally:
        os.close(request)
