"""The ticks by which a kernel's timers count."""

from typing import Final

TICK_NS: Final = 10_000_000
"""The tick of a kernel's clock at 100 Hz, as in virtual time."""


def goes_off_ns(from_ns: int, wait_ns: int) -> int:
    """Return when a timer of the kernel goes off: it counts whole ticks, and one more."""
    return (from_ns // TICK_NS - -wait_ns // TICK_NS + 1) * TICK_NS
