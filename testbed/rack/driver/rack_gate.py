"""The gate at which ranks on several machines wait for each other: a part of it on each machine, opened at one instant.

The instant is a moment of the driver's clock, on each machine's: ranks begin together as closely as clocks are known.
Links that change and flows in the background begin at the same one, a ``CommonStart``.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Self

from wanbed.ground.errors import WanbedError
from wanbed.testbed.rack.driver.rack_machine import RackMachine
from wanbed.testbed.rack.machine_handle import Pending

LEAD_NS = 50_000_000
"""Time for an instant to reach every machine before it comes."""
_LEAST_NS = 20_000_000
"""An instant that comes sooner than this is no longer agreed on with anybody."""


class CommonStart:
    """Instants of this process's monotonic clock: who asks shortly after another one is given the same."""

    def __init__(self) -> None:
        self._at_ns = 0

    def at_ns(self, lead_ns: int = LEAD_NS) -> int:
        """Return an instant to come: that which was returned last if there is time left, else one in ``lead_ns``."""
        if not self.is_to_come():
            self._at_ns = time.monotonic_ns() + lead_ns
        return self._at_ns

    def is_to_come(self) -> bool:
        """Return whether the next one who asks is given the instant that was returned last."""
        return self._at_ns - time.monotonic_ns() >= _LEAST_NS


_WAIT_S = 0.25


class RackGate:
    """A gate for a rank on each of ``hosts`` (a host may come several times), at ``path`` below each lease's folder.

    ``with`` opens it at the latest when it ends. It is opened at an instant of ``start``; ``begin`` is called before
    that, when all have come. If it does not ``open_itself``, only ``open`` does.
    """

    def __init__(
        self,
        machines: Mapping[str, RackMachine],
        machine_of: Mapping[str, str],
        hosts: Sequence[str],
        path: str,
        pipes: tuple[str, str],
        *,
        start: CommonStart,
        begin: Callable[[], None] = lambda: None,
        opens_itself: bool = True,
    ) -> None:
        self._path = path
        self._wanted = Counter(machine_of[host] for host in hosts)
        self._machines = [machines[name] for name in self._wanted]
        self._complete = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._missing, self._counting = len(self._machines), threading.Lock()
        self._start, self._begin, self._opens_itself = start, begin, opens_itself
        self._opening: list[Pending] = []
        self.is_open = False
        self.opened_ns: int | None = None
        for machine in self._machines:
            machine.call("make_gate", path, pipes)
        self._threads = [
            threading.Thread(target=self._await, args=(machine,), name=f"gate of {machine.name}", daemon=True)
            for machine in self._machines
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open(0)
        self._await_opening()
        for thread in self._threads:
            thread.join()
        for machine in self._machines:
            # A machine that has gone has no gate either.
            with suppress(WanbedError):
                machine.call("remove_gate", self._path)
        os.close(self._complete)

    def fileno(self) -> int:
        """Return a descriptor that is readable when all ranks have come."""
        return self._complete

    @property
    def is_complete(self) -> bool:
        """True if all have come."""
        return not self._missing

    def look(self) -> None:
        """Open the gate if all ranks have come, and return when it is open."""
        if self._opens_itself and self.is_complete and not self.is_open:
            self._begin()
            self.open()
            self._await_opening()

    def open(self) -> None:
        """Let everybody begin, who is there and who is still to come: in a moment together, if all are there."""
        self._open(self._start.at_ns() if self.is_complete else 0)

    def _open(self, at_ns: int) -> None:
        if self.is_open:
            return
        self.is_open = True
        self.opened_ns = at_ns or time.monotonic_ns()
        for machine in self._machines:
            ahead_ns = machine.clock.ahead_ns if at_ns else 0
            with suppress(WanbedError):
                self._opening.append(machine.start_call("open_gate", self._path, at_ns + ahead_ns))

    def _await_opening(self) -> None:
        for pending in self._opening:
            with suppress(WanbedError):
                pending.result()

    def _await(self, machine: RackMachine) -> None:
        arrived = 0
        # What goes wrong here is noticed where the machine's processes are followed.
        with suppress(WanbedError):
            while arrived < self._wanted[machine.name] and not self.is_open:
                arrived = machine.call("await_gate", self._path, arrived, _WAIT_S)
        with self._counting:
            if arrived >= self._wanted[machine.name]:
                self._missing -= 1
                if not self._missing:
                    os.eventfd_write(self._complete, 1)
