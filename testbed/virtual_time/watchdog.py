"""Detect from outside observations that a guest is stuck.

A guest's clock stands still while a process computes, and jumps to the next timer when all processes wait. So a process
that waits in a busy loop stops the clock for ever. If all processes wait for each other, only the kernel's own timers
are left, and the clock advances by days in a second.
"""

from collections.abc import Callable
from dataclasses import dataclass

_S = 10**9


@dataclass(frozen=True)
class Patience:
    """The limits on how long a guest may go without progress.

    ``spin_cpu_s`` is the CPU time for which its clock may stand still while it computes; not wall time, of which a busy
    machine gives it little. ``quiet_virtual_s`` is the virtual time without a new sign of progress. ``still_wall_s`` is
    the wall time in which neither the clock advances nor the guest computes.
    """

    spin_cpu_s: float = 60.0
    quiet_virtual_s: float = 30 * 86_400.0
    still_wall_s: float = 600.0


@dataclass(frozen=True)
class Watch:
    """A way to see that a guest is stuck: it has made no progress for longer than ``patience`` allows.

    It has if ``sign`` returns a new value; None stands for the bytes of its output.
    """

    patience: Patience = Patience()
    sign: Callable[[], object] | None = None


PATIENT = Watch()


@dataclass(frozen=True)
class Look:
    """A guest at one moment: wall clock, virtual clock, CPU time, and a ``sign`` that changes with its progress."""

    wall_s: float
    virtual_ns: int
    cpu_s: float
    sign: object


class Watchdog:
    """Decide from successive looks whether a guest is stuck."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._clock_moved: Look | None = None
        self._sign_seen: Look | None = None
        self._computed: Look | None = None

    def spins(self, look: Look) -> bool | None:
        """Return True if the guest is stuck in computation, False if it is stuck waiting, None if it is not stuck."""
        if self._clock_moved is None or self._clock_moved.virtual_ns != look.virtual_ns:
            self._clock_moved = look
        if self._sign_seen is None or self._sign_seen.sign != look.sign:
            self._sign_seen = look
        if self._computed is None or self._computed.cpu_s != look.cpu_s or self._clock_moved is look:
            self._computed = look
        if look.cpu_s - self._clock_moved.cpu_s > self._patience.spin_cpu_s:
            return True
        if look.virtual_ns - self._sign_seen.virtual_ns > self._patience.quiet_virtual_s * _S:
            return False
        if look.wall_s - self._computed.wall_s > self._patience.still_wall_s:
            return False
        return None
