"""Readings of a GPU's clock, on a runtime whose events take as long as a test says."""

import itertools
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.compute.device.device_clock import DeviceClock, EventClock, Sighting
from wanbed.workloads.compute.device.device_runtime import DeviceRuntime

SECOND_NS = 1_000_000_000

widths_ns = st.integers(0, 50_000)

speeds = st.floats(1 - 1e-4, 1 + 1e-4)

lengths_ns = st.integers(1_000_000, 100 * SECOND_NS)

begins_ns = st.integers(0, 10**16)


def sighting(moment_ns: int, early_ns: int, late_ns: int) -> Sighting:
    return Sighting(moment_ns - early_ns, moment_ns + late_ns)


@given(begins_ns, lengths_ns, speeds, st.tuples(widths_ns, widths_ns, widths_ns, widths_ns), st.floats(0, 1))
def test_a_converted_time_is_as_exact_as_the_worse_sighting(
    begin_ns: int, length_ns: int, speed: float, widths: tuple[int, int, int, int], share: float
) -> None:
    early, late = sighting(begin_ns, *widths[:2]), sighting(begin_ns + length_ns, *widths[2:])
    clock = DeviceClock(early, late, length_ns * speed)
    moment_ns = round(share * length_ns)
    assert abs(clock.host_ns(moment_ns * speed) - (begin_ns + moment_ns)) <= clock.error_ns + 2


@given(lengths_ns, widths_ns, st.lists(st.integers(0, 10**6), min_size=2, max_size=20))
def test_what_came_one_after_the_other_never_overlaps(length_ns: int, width_ns: int, cuts: list[int]) -> None:
    clock = DeviceClock(sighting(SECOND_NS, width_ns, 0), sighting(SECOND_NS + length_ns, 0, width_ns), length_ns)
    moments_ns = sorted(cut / 10**6 * length_ns for cut in cuts)
    seen = (0, 10**18)
    lines = [clock.interval_ns(start, end, seen) for start, end in itertools.pairwise(moments_ns)]
    for (_, end_ns), (start_ns, _) in itertools.pairwise(lines):
        assert end_ns <= start_ns


@given(st.integers(0, SECOND_NS), st.integers(0, SECOND_NS), st.integers(0, SECOND_NS), st.integers(0, SECOND_NS))
def test_nothing_is_reported_outside_of_what_the_host_saw(a: int, b: int, c: int, d: int) -> None:
    clock = DeviceClock(Sighting(0, 100), Sighting(SECOND_NS, SECOND_NS), SECOND_NS)
    low_ns, high_ns = sorted((a, b))
    start_ns, end_ns = clock.interval_ns(*sorted((c, d)), (low_ns, high_ns))
    assert low_ns <= start_ns <= end_ns <= high_ns


@pytest.mark.parametrize(("end_ns", "elapsed_ns"), [(100, 1.0), (200, 0.0)])
def test_one_moment_is_no_stretch_of_time(end_ns: int, elapsed_ns: float) -> None:
    with pytest.raises(ValueError, match="twice at the same moment"):
        DeviceClock(Sighting(100, 100), Sighting(end_ns, end_ns), elapsed_ns)


def test_a_sighting_does_not_end_before_it_begins() -> None:
    with pytest.raises(ValueError, match="latest_ns: 1 is before"):
        Sighting(2, 1)


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
