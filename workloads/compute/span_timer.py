"""Measure how long each action of an iteration keeps the device busy.

On the CPU the time is from the call to the return. On a GPU it is between two events on the device's own clock. The
events are read once an iteration, and the clock is compared with the host's at the same time.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from workloads.compute.device.device_clock import DeviceClock, Sighting
from workloads.compute.device.device_runtime import DeviceEvent, DeviceRuntime, DeviceStream
from workloads.compute.device.torch_device import TorchDevice

_LOOKS = 8
"""The number of readings of the device's clock for one sighting. The shortest reading is used."""


class SpanTimer(ABC):
    """Times actions, iteration by iteration. All calls come from one thread."""

    @abstractmethod
    def timed(self, work: Callable[[], None]) -> tuple[int, int]:
        """Carry out ``work``. Return when the host began it and when it saw the end, in CLOCK_MONOTONIC nanoseconds."""

    @abstractmethod
    def resolve(self) -> list[tuple[int, int]]:
        """Return the busy intervals since the last call, one for each ``timed``, in order, on the host's clock."""

    @property
    @abstractmethod
    def clock_error_ns(self) -> int:
        """The maximum error of the conversion to the host's clock so far, in nanoseconds."""


class HostTimer(SpanTimer):
    """Times a device whose own ``timed`` returns the busy time."""

    clock_error_ns = 0

    def __init__(self, device: TorchDevice) -> None:
        self._device = device
        self._timed: list[tuple[int, int]] = []

    def timed(self, work: Callable[[], None]) -> tuple[int, int]:
        """Let the device time ``work``, and keep the interval."""
        interval = self._device.timed(work)
        self._timed.append(interval)
        return interval

    def resolve(self) -> list[tuple[int, int]]:
        """Return the intervals that ``timed`` has returned since the last call."""
        timed, self._timed = self._timed, []
        return timed


@dataclass(frozen=True, slots=True)
class _Timed:
    before: DeviceEvent
    after: DeviceEvent
    seen: tuple[int, int]


class EventTimer(SpanTimer):
    """Records a GPU's events before and after every action. The events are reused in each iteration.

    ``timed`` returns when the device is done, because the next action is chosen when the GPU becomes idle, not before.
    No busy time includes the delay until the host sees the end.
    """

    clock_error_ns = 0

    def __init__(self, runtime: DeviceRuntime, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._runtime = runtime
        self._clock = clock
        self._free: list[DeviceEvent] = []
        self._timed: list[_Timed] = []
        self._begun = self._sighting()

    def timed(self, work: Callable[[], None]) -> tuple[int, int]:
        """Carry out ``work``. Return when the host enqueued it and when it saw its end."""
        before, after = self._event(), self._event()
        compute = self._runtime.compute_stream()
        start_ns = self._clock()
        compute.record(before)
        work()
        compute.record(after)
        after.wait()
        seen = start_ns, self._clock()
        self._timed.append(_Timed(before, after, seen))
        return seen

    def resolve(self) -> list[tuple[int, int]]:
        """Return the intervals between the events, within the times that ``timed`` returned."""
        (origin, begin), (event, end) = self._begun, self._sighting()
        clock = DeviceClock(begin, end, event.since_ns(origin))
        self.clock_error_ns = max(self.clock_error_ns, clock.error_ns)
        intervals = [
            clock.interval_ns(each.before.since_ns(origin), each.after.since_ns(origin), each.seen)
            for each in self._timed
        ]
        for each in self._timed:
            self._free += (each.before, each.after)
        self._free.append(origin)
        self._timed.clear()
        self._begun = event, end
        return intervals

    def _event(self) -> DeviceEvent:
        return self._free.pop() if self._free else self._runtime.event()

    def _sighting(self) -> tuple[DeviceEvent, Sighting]:
        compute = self._runtime.compute_stream()
        best, found = self._look(compute)
        for _ in range(_LOOKS - 1):
            event, sighting = self._look(compute)
            if sighting.error_ns < found.error_ns:
                best, event, found = event, best, sighting
            self._free.append(event)
        return best, found

    def _look(self, compute: DeviceStream) -> tuple[DeviceEvent, Sighting]:
        event = self._event()
        earliest_ns = self._clock()
        compute.record(event)
        event.spin()
        return event, Sighting(earliest_ns, self._clock())


def create_timer(device: TorchDevice) -> SpanTimer:
    """Return the timer for computation on ``device``."""
    return HostTimer(device) if device.runtime is None else EventTimer(device.runtime)
