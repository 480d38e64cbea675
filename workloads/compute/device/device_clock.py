"""Convert times of a device's clock to the host's CLOCK_MONOTONIC, by two moments observed on both clocks.

A GPU's clock is compared with the host's by events that are made once and used again.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from wanbed.workloads.compute.device.device_runtime import DeviceEvent, DeviceRuntime


@dataclass(frozen=True)
class Sighting:
    """A moment on the device that lies between two readings of the host's clock, in nanoseconds.

    Raises ValueError if the later reading is before the earlier one.
    """

    earliest_ns: int
    latest_ns: int

    def __post_init__(self) -> None:
        if self.latest_ns < self.earliest_ns:
            raise ValueError(f"latest_ns: {self.latest_ns} is before earliest_ns, {self.earliest_ns}")

    @property
    def host_ns(self) -> int:
        """The middle of the two readings. Its error is ``error_ns`` at most."""
        return (self.earliest_ns + self.latest_ns) // 2

    @property
    def error_ns(self) -> int:
        """The maximum error of ``host_ns``."""
        return self.latest_ns - self.host_ns


@dataclass(frozen=True)
class DeviceClock:
    """The interval between two sightings, which are ``elapsed_ns`` apart on the device.

    The two clocks may run at slightly different speeds. Between the sightings time is interpolated, so the error of a
    converted moment is at most that of the worse sighting, as long as neither clock changes its speed. Raises
    ValueError if no time lies between the sightings.
    """

    begin: Sighting
    end: Sighting
    elapsed_ns: float

    def __post_init__(self) -> None:
        if not self.elapsed_ns > 0 or self.end.host_ns <= self.begin.host_ns:
            raise ValueError("the device's clock was seen twice at the same moment")

    @property
    def error_ns(self) -> int:
        """The maximum error of a converted moment."""
        return max(self.begin.error_ns, self.end.error_ns)

    def host_ns(self, since_begin_ns: float) -> int:
        """Return the host's time of the moment ``since_begin_ns`` after the first sighting on the device's clock."""
        speed = (self.end.host_ns - self.begin.host_ns) / self.elapsed_ns
        return self.begin.host_ns + round(since_begin_ns * speed)

    def interval_ns(self, start_ns: float, end_ns: float, seen: tuple[int, int]) -> tuple[int, int]:
        """Return start and end on the host's clock of work from ``start_ns`` to ``end_ns`` after the first sighting.

        ``seen`` is when the host enqueued the work and when it saw the end. The result is clamped to ``seen``, so that
        an error of the clock never makes the work overlap what the host began afterwards.
        """
        low_ns, high_ns = seen
        start_host_ns, end_host_ns = (min(max(self.host_ns(each), low_ns), high_ns) for each in (start_ns, end_ns))
        return start_host_ns, max(start_host_ns, end_host_ns)


_LOOKS, _MOST_LOOKS = 8, 40
"""The number of readings of the GPU's clock for one sighting, and the most. The shortest reading is used."""

_GOOD_NS = 50_000
"""An error with which no more readings are taken. While other processes' kernels have the GPU, one takes a turn of
theirs, up to milliseconds; between two turns it takes some microseconds."""


class EventClock:
    """The clock by which a GPU times its events. ``error_ns`` is the maximum error of the conversions so far.

    ``now_ns`` reads the host's clock. All calls come from one thread.
    """

    error_ns = 0

    def __init__(self, runtime: DeviceRuntime, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._runtime = runtime
        self._compute = runtime.compute_stream()
        self._now_ns = now_ns
        self._free: list[DeviceEvent] = []
        self._begun = self._sighting()

    def event(self) -> DeviceEvent:
        """Return an event that is not in use."""
        return self._free.pop() if self._free else self._runtime.event()

    def reuse(self, events: Iterable[DeviceEvent]) -> None:
        """Take back events that nothing waits for or reads any more."""
        self._free += events

    def compare(self) -> tuple[DeviceEvent, DeviceClock]:
        """Look at both clocks now. Return the event of the look before, and the conversion of times since that event.

        Give the event to ``reuse`` once the conversions are done.
        """
        (origin, begin), (event, end) = self._begun, self._sighting()
        clock = DeviceClock(begin, end, event.since_ns(origin))
        self.error_ns = max(self.error_ns, clock.error_ns)
        self._begun = event, end
        return origin, clock

    def _sighting(self) -> tuple[DeviceEvent, Sighting]:
        best, found = self._look()
        for number in range(1, _MOST_LOOKS):
            if number >= _LOOKS and found.error_ns <= _GOOD_NS:
                break
            event, sighting = self._look()
            if sighting.error_ns < found.error_ns:
                best, event, found = event, best, sighting
            self._free.append(event)
        return best, found

    def _look(self) -> tuple[DeviceEvent, Sighting]:
        event = self.event()
        earliest_ns = self._now_ns()
        self._compute.record(event)
        event.spin()
        return event, Sighting(earliest_ns, self._now_ns())
