"""Compare a GPU's clock with the host's, by events that are made once and used again."""

import time
from collections.abc import Callable, Iterable

from wanbed.workloads.compute.device.device_clock import DeviceClock, Sighting
from wanbed.workloads.compute.device.device_runtime import DeviceEvent, DeviceRuntime

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
