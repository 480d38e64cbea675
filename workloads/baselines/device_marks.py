"""Mark moments of a baseline's computation: on the host's clock, or in a GPU's stream of kernels."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

from workloads.compute.device.device_clock import DeviceClock, Sighting
from workloads.compute.device.device_runtime import DeviceEvent, DeviceRuntime

Mark: TypeAlias = int | DeviceEvent
"""A moment: in CLOCK_MONOTONIC nanoseconds, or an event of the GPU."""

_LOOKS = 8
"""The number of readings of the GPU's clock for one sighting. The shortest reading is used."""


class DeviceMarks(ABC):
    """Marks moments at which the work enqueued so far is done. No mark blocks the host."""

    clock_error_ns = 0
    """The maximum error of the conversion to the host's clock so far."""

    @abstractmethod
    def mark(self) -> Mark:
        """Mark the moment at which all work that was enqueued before is done."""

    @abstractmethod
    def times_ns(self, marks: Sequence[Mark]) -> list[int]:
        """Wait for the marks, all made since the last call. Return their times in CLOCK_MONOTONIC nanoseconds."""


class HostMarks(DeviceMarks):
    """Marks of a CPU, where work is done when the call returns."""

    def mark(self) -> Mark:
        """Return the current time."""
        return time.monotonic_ns()

    def times_ns(self, marks: Sequence[Mark]) -> list[int]:
        """Return the marks, which are times."""
        return [each for each in marks if isinstance(each, int)]


class EventMarks(DeviceMarks):
    """Marks of a GPU: events on its compute stream, related to the host's clock at every ``times_ns``."""

    def __init__(self, runtime: DeviceRuntime) -> None:
        self._runtime = runtime
        self._begun = self._sighting()

    def mark(self) -> Mark:
        """Record an event behind the kernels of this thread."""
        event = self._runtime.event()
        self._runtime.compute_stream().record(event)
        return event

    def times_ns(self, marks: Sequence[Mark]) -> list[int]:
        """Interpolate between the sightings of the clock before and after the marks."""
        (origin, begin), (event, end) = self._begun, self._sighting()
        clock = DeviceClock(begin, end, event.since_ns(origin))
        self.clock_error_ns = max(self.clock_error_ns, clock.error_ns)
        self._begun = event, end
        return [clock.host_ns(each.since_ns(origin)) for each in marks if isinstance(each, DeviceEvent)]

    def _sighting(self) -> tuple[DeviceEvent, Sighting]:
        looks = (self._look() for _ in range(_LOOKS))
        return min(looks, key=lambda look: look[1].error_ns)

    def _look(self) -> tuple[DeviceEvent, Sighting]:
        event, earliest_ns = self._runtime.event(), time.monotonic_ns()
        self._runtime.compute_stream().record(event)
        event.wait()
        return event, Sighting(earliest_ns, time.monotonic_ns())


def create_marks(runtime: DeviceRuntime | None) -> DeviceMarks:
    """Return the marks of the GPU that ``runtime`` is, of the CPU if there is none."""
    return HostMarks() if runtime is None else EventMarks(runtime)
