"""Convert times of a device's clock to the host's CLOCK_MONOTONIC, from moments that both have seen."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sighting:
    """A moment on the device that the host knows to lie between two readings of its own clock, in nanoseconds."""

    earliest_ns: int
    latest_ns: int

    def __post_init__(self) -> None:
        if self.latest_ns < self.earliest_ns:
            raise ValueError(f"latest_ns: {self.latest_ns} is before earliest_ns, {self.earliest_ns}")

    @property
    def host_ns(self) -> int:
        """The middle of the two readings, never further off than ``error_ns``."""
        return (self.earliest_ns + self.latest_ns) // 2

    @property
    def error_ns(self) -> int:
        """The most that ``host_ns`` can be off."""
        return self.latest_ns - self.host_ns


@dataclass(frozen=True)
class DeviceClock:
    """The stretch of time between two sightings, ``elapsed_ns`` apart on the device.

    The two clocks may run at slightly different speeds. Between the sightings time is interpolated, so that a
    converted moment is off by no more than the worse sighting is, as long as neither clock changes its speed. Raises
    ValueError if nothing lies between the two.
    """

    begin: Sighting
    end: Sighting
    elapsed_ns: float

    def __post_init__(self) -> None:
        if not self.elapsed_ns > 0 or self.end.host_ns <= self.begin.host_ns:
            raise ValueError("the device's clock was seen twice at the same moment")

    @property
    def error_ns(self) -> int:
        """The most that a converted moment is off."""
        return max(self.begin.error_ns, self.end.error_ns)

    def host_ns(self, since_begin_ns: float) -> int:
        """Return the host's time at which ``since_begin_ns`` had gone by on the device since the first sighting."""
        speed = (self.end.host_ns - self.begin.host_ns) / self.elapsed_ns
        return self.begin.host_ns + round(since_begin_ns * speed)

    def interval_ns(self, start_ns: float, end_ns: float, seen: tuple[int, int]) -> tuple[int, int]:
        """Return the host's start and end of what lasted from ``start_ns`` to ``end_ns`` since the first sighting.

        ``seen`` is when the host enqueued it and when it knew it done. The result is kept within ``seen``, so that an
        error of the clock never makes it overlap what the host began afterwards.
        """
        low_ns, high_ns = seen
        start_host_ns, end_host_ns = (min(max(self.host_ns(each), low_ns), high_ns) for each in (start_ns, end_ns))
        return start_host_ns, max(start_host_ns, end_host_ns)
