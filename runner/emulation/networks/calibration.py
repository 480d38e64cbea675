"""Decide whether the calibration of one sweep point still holds at another one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wanbed.testbed.measurement.calibration import MeasuredLink

MAX_AGE_S = 600.0
"""Links that were measured longer ago are measured again: what else a machine does changes with time."""


@dataclass(frozen=True)
class Calibration:
    """The measurements of a testbed's links before the trials of sweep point ``point``.

    ``values`` are the swept values of that point. ``testbed`` identifies the testbed; a testbed that was brought up
    anew has another identifier. ``reported`` are the settings that the kernels reported of its network just before.
    ``began_s`` is the start of the measurement, on this process's monotonic clock. ``links`` are undilated.
    """

    point: int
    values: Mapping[str, str]
    testbed: str
    reported: Mapping[str, Any]
    began_s: float
    links: tuple[MeasuredLink, ...]

    def holds(self, testbed: str, reported: Mapping[str, Any], now_s: float) -> bool:
        """Return whether the links of ``testbed``, of which its kernels now report this, need not be measured again.

        They need not if the same testbed is still up, its kernels report the same as then, every link was within
        tolerance, and ``MAX_AGE_S`` has not passed since.
        """
        unchanged = testbed == self.testbed and reported == self.reported
        within = all(link.within_tolerance for link in self.links)
        return unchanged and within and now_s - self.began_s <= MAX_AGE_S
