"""Measure how long each action of an iteration keeps the device busy.

On the CPU the time is from the call to the return. On a GPU it is between two events on the device's own clock. The
events are read once an iteration, and the clock is compared with the host's at the same time.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from wanbed.workloads.compute.device.device_runtime import DeviceEvent, DeviceRuntime
from wanbed.workloads.compute.device.event_clock import EventClock
from wanbed.workloads.compute.device.torch_device import TorchDevice


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

    It times the stream that was the thread's compute stream when the timer was made. ``timed`` returns when the device
    is done, because the next action is chosen when the GPU becomes idle, not before.
    No busy time includes the delay until the host sees the end.
    """

    def __init__(self, runtime: DeviceRuntime, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._clock = EventClock(runtime, now_ns)
        # Asking for it again for every action would cost as much as recording an event.
        self._compute = runtime.compute_stream()
        self._timed: list[_Timed] = []

    def timed(self, work: Callable[[], None]) -> tuple[int, int]:
        """Carry out ``work``. Return when the host enqueued it and when it saw its end."""
        before, after = self._clock.event(), self._clock.event()
        start_ns = self._now_ns()
        self._compute.record(before)
        work()
        self._compute.record(after)
        after.wait()
        seen = start_ns, self._now_ns()
        self._timed.append(_Timed(before, after, seen))
        return seen

    def resolve(self) -> list[tuple[int, int]]:
        """Return the intervals between the events, within the times that ``timed`` returned."""
        origin, clock = self._clock.compare()
        intervals = [
            clock.interval_ns(each.before.since_ns(origin), each.after.since_ns(origin), each.seen)
            for each in self._timed
        ]
        self._clock.reuse([origin, *(event for each in self._timed for event in (each.before, each.after))])
        self._timed.clear()
        return intervals

    @property
    def clock_error_ns(self) -> int:
        """The maximum error of the conversion to the host's clock so far, in nanoseconds."""
        return self._clock.error_ns


def create_timer(device: TorchDevice) -> SpanTimer:
    """Return the timer for computation on ``device``."""
    return HostTimer(device) if device.runtime is None else EventTimer(device.runtime)
