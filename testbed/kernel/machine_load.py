"""Measure how busy the machine itself is: an emulated network is only as fast as the cores that carry it."""

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE_FIELDS = (3, 4)
"""Of the ``cpu`` line: idle, and waiting for disks."""
_PARENT_FIELD, _CPU_TIME_FIELDS = 1, (11, 12, 13, 14)
"""Of a process's ``stat``, after its name: user and system time, its own and that of children it has reaped."""


@dataclass(frozen=True)
class CpuTimes:
    """Time of all cores since the machine started, in ticks of the kernel: in all, and idle."""

    total_ticks: int
    idle_ticks: int

    def busy_since(self, before: "CpuTimes") -> float | None:
        """Return the fraction of all cores that was busy since ``before``; None if no tick has passed."""
        passed = self.total_ticks - before.total_ticks
        return None if passed <= 0 else 1 - (self.idle_ticks - before.idle_ticks) / passed


def parse_cpu_times(stat: str) -> CpuTimes:
    """Read the first line of /proc/stat. Guest time counts as busy once: the kernel has it in user time already.

    Raises ValueError if it is no such line.
    """
    words = stat.split("\n", 1)[0].split()
    if words[:1] != ["cpu"] or len(words) < 9:
        raise ValueError(f"{_STAT}: its first line is {stat[:60]!r}")
    ticks = [int(field) for field in words[1:9]]
    return CpuTimes(sum(ticks), sum(ticks[index] for index in _IDLE_FIELDS))


def read_cpu_times() -> CpuTimes:
    """Read the times as of now."""
    return parse_cpu_times(_STAT.read_text())


def process_tree_cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process and its descendants have used; those that have ended count once reaped.

    What cannot be read any more, because it has just ended, counts as nothing.
    """
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name, in brackets, may hold anything.
            words = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks[int(entry.name)] = sum(int(words[index]) for index in _CPU_TIME_FIELDS)
        children[int(words[_PARENT_FIELD])].append(int(entry.name))
    counted, found = 0, [pid]
    while found:
        each = found.pop()
        counted += ticks.get(each, 0)
        found += children[each]
    return counted / os.sysconf("SC_CLK_TCK")
