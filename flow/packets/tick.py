"""The ticks of a kernel's clock at 100 Hz, as in virtual time, since training began."""

from typing import Final

TICK_NS: Final = 10_000_000

MET_NS: Final = 1_300_000
"""The time after a tick at which ranks would have met if round trips took no time.

They call each other 0.9 ms after one, and their greetings have to be serialised. In virtual time 48 of 50 trials with
round trips of whole ticks began 0.8 to 3.5 ms after one, half of them within 1.3 ms.
"""


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


def met_over(rtt_ns: int) -> Ticks:
    """Return the ticks of trials in which ranks meet over round trips of up to ``rtt_ns``.

    Connections take a round trip, and greetings another. Training begins once all have met.
    """
    return Ticks((MET_NS + 2 * rtt_ns) % TICK_NS)


MET_AT_ONCE: Final = Ticks()
