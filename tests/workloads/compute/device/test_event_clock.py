"""Readings of a GPU's clock, on a runtime whose events take as long as a test says."""

from collections.abc import Iterator
from typing import Any, cast

import pytest

from wanbed.workloads.compute.device.device_runtime import DeviceRuntime
from wanbed.workloads.compute.device.event_clock import EventClock


class Machine:
    """A host and a GPU with one clock. Each event waits as long as the next of ``waits_ns``, then 1 us for good."""

    def __init__(self, *waits_ns: int) -> None:
        self._waits_ns = iter(waits_ns)
        self.now_ns = 0
        self.looks = 0

    def event(self) -> "Event":
        return Event(self)

    def compute_stream(self) -> "Machine":
        return self

    def record(self, event: "Event") -> None:
        self.looks += 1
        wait_ns = next(self._waits_ns, 1_000)
        self.now_ns += wait_ns
        event.at_ns = self.now_ns - wait_ns // 2

    def clock(self) -> EventClock:
        return EventClock(cast("DeviceRuntime", self), lambda: self.now_ns)


class Event:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.at_ns = 0

    def spin(self) -> None:
        pass

    def since_ns(self, other: Any) -> float:
        return float(self.at_ns - other.at_ns)


def turns(count: int) -> Iterator[int]:
    """Yield the waits for ``count`` turns of other processes on the same GPU."""
    yield from [2_000_000] * count


@pytest.mark.parametrize(
    ("waits_ns", "looks", "error_ns"),
    [
        ([], 8, 500),
        ([*turns(7), 20_000], 8, 10_000),
        ([*turns(20), 20_000], 21, 10_000),
        ([*turns(100)], 40, 1_000_000),
    ],
)
def test_the_clock_is_read_until_a_reading_is_short_or_too_many_were_not(
    waits_ns: list[int], looks: int, error_ns: int
) -> None:
    machine = Machine(*waits_ns)
    clock = machine.clock()
    assert machine.looks == looks
    _, converted = clock.compare()
    assert converted.begin.error_ns == error_ns
    assert clock.error_ns == max(error_ns, converted.end.error_ns)


def test_a_moment_between_two_readings_is_converted_within_the_error() -> None:
    machine = Machine(*turns(3))
    clock = machine.clock()
    machine.now_ns += 1_000_000_000
    event = clock.event()
    machine.record(cast("Any", event))
    origin, converted = clock.compare()
    assert abs(converted.host_ns(cast("Any", event).since_ns(origin)) - cast("Any", event).at_ns) <= clock.error_ns
