"""One machine that is up, from the driver's side: its processes, its clock, and whether it is still there."""

import signal
import threading
from collections.abc import Callable
from typing import Any

from testbed.rack.clocks.clock_port import ClockQuestions
from testbed.rack.driver.machine_clock import MachineClock
from testbed.rack.driver.remote_process import Ending, RemoteProcess
from testbed.rack.machine_handle import MachineHandle, MachineLostError, Pending
from testbed.rack.orders import LeaseFacts, Program

_HEARTBEAT_S = 1.0
_WAIT_S = 0.25
"""How long one question for ended processes waits. A process that was started since is in the next one."""


class RackMachine:
    """A leased machine. Two threads follow it until ``close``: one its processes, the other its clock.

    Whatever it fails to answer, its processes then count as killed, and ``check`` raises MachineLostError.
    """

    def __init__(self, handle: MachineHandle, lease: LeaseFacts) -> None:
        self.name = handle.name
        self.handle = handle
        self.lease = lease
        self._questions = ClockQuestions(lease.clock, handle.datagram_socket(), self._call_for_clock)
        self.clock = MachineClock(self._questions.clock_ns)
        self.inputs: set[str] = set()
        """The driver's files that the machine has already."""
        self._lost: MachineLostError | None = None
        self._running: dict[int, tuple[RemoteProcess, Ending]] = {}
        self._closing, self._changed = threading.Event(), threading.Condition()
        self._threads = [
            threading.Thread(target=self._follow, args=(step,), name=f"{what} of {self.name}", daemon=True)
            for what, step in (("processes", self._await_ends), ("clock", self._beat))
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop following the machine."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._questions.close()

    def check(self) -> None:
        """Raise MachineLostError if the machine has gone."""
        if self._lost is not None:
            raise self._lost

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the machine. Raise MachineLostError if it has gone."""
        self.check()
        return self.handle.call(method, *arguments)

    def start_call(self, method: str, *arguments: Any) -> Pending:
        """Send a call and return without waiting for it. Raise MachineLostError if the machine has gone."""
        self.check()
        return self.handle.start_call(method, *arguments)

    def start(
        self, host: str, program: Program, made: Callable[[int], RemoteProcess], ending: Ending = lambda _: None
    ) -> RemoteProcess:
        """Start a program; ``made`` makes the process of its number. ``ending`` is called when it has ended."""
        number = self.call("start", host, program)
        process = made(number)
        with self._changed:
            self._running[number] = process, ending
            self._changed.notify_all()
        if self._lost is not None:
            self._end_all()
        return process

    def output(self, number: int, offset: int) -> bytes:
        """Return what a process has printed from this byte on."""
        return bytes(self.call("output", number, offset))

    def kill(self, number: int, signal_number: int) -> None:
        """Send a signal to a process, if it still runs."""
        self.call("kill", number, signal_number)

    def _follow(self, step: Callable[[], None]) -> None:
        try:
            while not self._closing.is_set() and self._lost is None:
                step()
        except Exception as fault:
            # A process that nobody follows would seem to run for ever.
            if not self._closing.is_set():
                self._lose(fault)

    def _call_for_clock(self) -> int:
        """Call for the machine's time, which keeps the lease."""
        return int(self.handle.call("clock_ns"))

    def _beat(self) -> None:
        self._call_for_clock()
        self.clock.meanwhile()
        self._closing.wait(_HEARTBEAT_S)

    def _await_ends(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._running or self._closing.is_set(), _HEARTBEAT_S)
            numbers = [*self._running]
        if not numbers:
            return
        for number, status in self.handle.call("wait", numbers, _WAIT_S).items():
            with self._changed:
                process, ending = self._running[number]
            ended_ns = int(self.handle.call("ended_ns", number)) - self.clock.ahead_ns
            ending(status)
            with self._changed:
                self._running.pop(number, None)
            process.end(status, ended_ns)

    def _lose(self, fault: Exception) -> None:
        named = fault if isinstance(fault, MachineLostError) else MachineLostError(f"machine {self.name}: {fault}")
        self._lost = self._lost or named
        self._end_all()

    def _end_all(self) -> None:
        with self._changed:
            running, self._running = self._running, {}
        for process, _ in running.values():
            process.end(-signal.SIGKILL)
