"""Detect when a guest is stuck, by rules over what the outside sees of it.

A guest computes for nothing: its clock stands still while a process runs, and jumps to the next timer when all wait.
So a process that spins until something happens stops the clock for ever; and where every process waits for another one,
only the kernel's own timers are left, and the clock runs away, by days in a second.
"""

from dataclasses import dataclass

_S = 10**9


@dataclass(frozen=True)
class Patience:
    """The limits on how long a guest may go without a sign.

    ``spin_cpu_s``: of CPU time, for which its clock may stand still while it computes. Not of wall time: a busy machine
    gives it little. ``quiet_virtual_s``: of its own time, for which nothing may come of it. ``still_wall_s``: of wall
    time, for which neither its clock may move nor it compute.
    """

    spin_cpu_s: float = 60.0
    quiet_virtual_s: float = 30 * 86_400.0
    still_wall_s: float = 600.0


PATIENT = Patience()


@dataclass(frozen=True)
class Look:
    """A guest at one moment: the outside's clock, its own, its CPU time, and anything that changes when it gets on."""

    wall_s: float
    virtual_ns: int
    cpu_s: float
    sign: object


class Watchdog:
    """Judge one look after another."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._clock_moved: Look | None = None
        self._sign_seen: Look | None = None
        self._computed: Look | None = None

    def spins(self, look: Look) -> bool | None:
        """Return True if the guest is stuck because something runs, False because nothing does, None if it is not."""
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
