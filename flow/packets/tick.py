"""The ticks of a kernel's clock at 100 Hz, as in virtual time, since training began."""

from typing import Final

TICK_NS: Final = 10_000_000

MET_NS: Final = 1_000_000
"""The time after a tick at which ranks would have met if their greetings took no time: they call each other then."""


class Ticks:
    """The ticks of the hosts' kernels. Training begins, at 0, ``begins_ns`` after one."""

    __slots__ = ("_begins_ns",)

    def __init__(self, begins_ns: int = MET_NS) -> None:
        self._begins_ns = begins_ns

    def count(self, now_ns: int) -> int:
        """Return how many ticks there have been."""
        return (now_ns + self._begins_ns) // TICK_NS

    def goes_off_ns(self, from_ns: int, wait_ns: int) -> int:
        """Return when a timer of the kernel goes off: it counts whole ticks, and one more."""
        return (self.count(from_ns) - -wait_ns // TICK_NS + 1) * TICK_NS - self._begins_ns


def met_after(greetings_ns: int) -> Ticks:
    """Return the ticks of trials in which training begins once greetings have taken that long."""
    return Ticks((MET_NS + greetings_ns) % TICK_NS)


MET_AT_ONCE: Final = Ticks()
