"""Mark moments of a baseline's computation: on the host's clock, or in a GPU's stream of kernels."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

from wanbed.workloads.compute.device.device_runtime import DeviceEvent, DeviceRuntime
from wanbed.workloads.compute.device.event_clock import EventClock

Mark: TypeAlias = int | DeviceEvent
"""A moment: in CLOCK_MONOTONIC nanoseconds, or an event of the GPU."""


class DeviceMarks(ABC):
    """Marks moments at which the work enqueued so far is done. No mark blocks the host."""

    @property
    @abstractmethod
    def clock_error_ns(self) -> int:
        """The maximum error of the conversion to the host's clock so far."""

    @abstractmethod
    def mark(self) -> Mark:
        """Mark the moment at which all work that was enqueued before is done."""

    @abstractmethod
    def times_ns(self, marks: Sequence[Mark]) -> list[int]:
        """Wait for the marks, all made since the last call. Return their times in CLOCK_MONOTONIC nanoseconds."""


class HostMarks(DeviceMarks):
    """Marks of a CPU, where work is done when the call returns."""

    clock_error_ns = 0

    def mark(self) -> Mark:
        """Return the current time."""
        return time.monotonic_ns()

    def times_ns(self, marks: Sequence[Mark]) -> list[int]:
        """Return the marks, which are times."""
        return [each for each in marks if isinstance(each, int)]


class EventMarks(DeviceMarks):
    """Marks of a GPU: events on its compute stream, related to the host's clock at every ``times_ns``."""

    def __init__(self, runtime: DeviceRuntime, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._runtime = runtime
        self._clock = EventClock(runtime, now_ns)

    def mark(self) -> Mark:
        """Record an event behind the kernels of this thread."""
        event = self._clock.event()
        self._runtime.compute_stream().record(event)
        return event

    def times_ns(self, marks: Sequence[Mark]) -> list[int]:
        """Interpolate between the looks at the clock before and after the marks."""
        origin, clock = self._clock.compare()
        events = [each for each in marks if isinstance(each, DeviceEvent)]
        times_ns = [clock.host_ns(each.since_ns(origin)) for each in events]
        self._clock.reuse([origin, *events])
        return times_ns

    @property
    def clock_error_ns(self) -> int:
        """The maximum error of the conversion to the host's clock so far."""
        return self._clock.error_ns


def create_marks(runtime: DeviceRuntime | None) -> DeviceMarks:
    """Return the marks of the GPU that ``runtime`` is, of the CPU if there is none."""
    return HostMarks() if runtime is None else EventMarks(runtime)
