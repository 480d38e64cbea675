"""Convert times of a device's clock to the host's CLOCK_MONOTONIC, by two moments observed on both clocks."""

from dataclasses import dataclass


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
