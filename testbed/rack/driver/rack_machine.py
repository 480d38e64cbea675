"""One machine that is up, from the driver's side: its processes, its clock, and whether it is still there.

That a machine has gone is noticed soon, without giving up one that is only slow. Once a second a machine is asked by a
datagram and by a call; the answer to any earlier question counts too. A machine without power answers nothing, and
neither does its kernel: it is given up after ``SILENT_BEATS`` and one try to reach the kernel, within 12 s. While the
kernel answers, the machine is there, and its processes have ``STUCK_BEATS``. Questions are counted, not seconds, so
that a driver that was stopped itself gives nobody up.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Protocol, Self, TypeVar

from wanbed.ground.errors import WanbedError
from wanbed.testbed.rack.clock_port import ClockPlace, ClockQuestions
from wanbed.testbed.rack.driver.machine_clock import MachineClock
from wanbed.testbed.rack.machine_handle import LeaseFacts, MachineHandle, MachineLostError, Pending, ProgramOrder

BEAT_S = 1.0
"""The time between two questions, and for how long each is waited for."""
SILENT_BEATS, STUCK_BEATS = 10, 30
KERNEL_S = 2.0
"""The time in which a kernel has to answer: it is long enough for the first packet to be sent twice."""


class Pulse:
    """The signs of life of one machine; ``place`` is where it answers datagrams, None if it does not."""

    def __init__(self, handle: MachineHandle, place: ClockPlace | None) -> None:
        self._handle = handle
        self._questions = ClockQuestions(place, handle.datagram_socket(), lambda: 0)
        self._call: Pending | None = None
        self._unanswered = 0

    def beat(self) -> None:
        """Ask once more, which takes ``BEAT_S`` if nothing is answered. Raise MachineLostError if the machine has gone.

        The call keeps the lease where datagrams do not arrive.
        """
        if self._call is None:
            self._call = self._handle.start_call("clock_ns")
        answered = self._questions.is_answered(BEAT_S)
        answered |= self._is_call_answered(0 if self._questions.by_datagrams else BEAT_S)
        self._unanswered = 0 if answered else self._unanswered + 1
        if self._unanswered >= STUCK_BEATS:
            raise MachineLostError(
                f"{self._handle.name} has left the rack: its kernel answers, and wanbed's agent there has not answered "
                f"{STUCK_BEATS} questions in a row"
            )
        if self._unanswered >= SILENT_BEATS and not self._handle.is_reachable(KERNEL_S):
            raise MachineLostError(
                f"{self._handle.name} has left the rack: it has not answered {SILENT_BEATS} questions in a row"
            )

    def close(self) -> None:
        """Release the socket."""
        self._questions.close()

    def _is_call_answered(self, timeout_s: float) -> bool:
        if self._call is None:
            return False
        try:
            self._call.result(timeout_s)
        except TimeoutError:
            return False
        self._call = None
        return True


_OUTPUT_LOOK_S = 0.02
"""The time between two looks at what a program has printed."""


class _ProcessCalls(Protocol):
    """The part of its machine that a process needs."""

    def output(self, number: int, offset: int) -> bytes:
        """Return what a process has printed from this byte on."""

    def kill(self, number: int, signal_number: int) -> None:
        """Send a signal to a process, if it still runs."""


class RemoteProcess:
    """A process by its ``number`` on its machine; the machine says when it has ended."""

    def __init__(self, number: int, calls: _ProcessCalls) -> None:
        self.pid = number
        self.returncode: int | None = None
        self.ended_ns: int | None = None
        """The moment of its end, by the machine's clock less its lead when the trial began; None if unknown."""
        self._calls = calls
        self._ended = threading.Event()
        self._end_event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def __del__(self) -> None:
        os.close(self._end_event)

    def end(self, status: int, ended_ns: int | None = None) -> None:
        """Note that the process has ended, and when."""
        self.ended_ns = ended_ns
        self.returncode = status
        os.eventfd_write(self._end_event, 1)
        self._ended.set()

    def fileno(self) -> int:
        """Return a descriptor that is readable once the process has ended."""
        return self._end_event

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status. Raise subprocess.TimeoutExpired after ``timeout`` seconds."""
        self._ended.wait(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return self.returncode

    def kill(self) -> None:
        """Send SIGKILL, if it still runs."""
        self._send(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM, if it still runs."""
        self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        if self.returncode is None:
            # A machine that has gone has ended its processes too.
            with suppress(WanbedError):
                self._calls.kill(self.pid, number)


class RemoteProgram(RemoteProcess):
    """A program whose output the driver reads, as text."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()

    @property
    def stdout(self) -> Iterator[str]:
        """The lines that the program prints, from the first, as they come until it ends."""
        printed, offset = "", 0
        while True:
            over = self.returncode is not None
            new = self._calls.output(self.pid, offset)
            offset += len(new)
            printed += new.decode(errors="replace")
            *lines, printed = printed.split("\n")
            yield from (f"{line}\n" for line in lines)
            if over:
                if printed:
                    yield printed
                return
            if not new:
                time.sleep(_OUTPUT_LOOK_S)

    def communicate(self, *, timeout: float | None = None) -> tuple[str, None]:
        """Wait for the end and return all that was printed. Raise subprocess.TimeoutExpired after ``timeout``."""
        self.wait(timeout)
        return self._calls.output(self.pid, 0).decode(errors="replace"), None


_Ending = Callable[[int], None]
"""Called when a process has ended, with its exit status, before anybody else learns of it."""

_CLOCK_INTERVAL_S = 1.0
_WAIT_S = 0.25
"""The time for which one question for ended processes waits. A process that was started since is in the next one."""
_LOOK_S = 0.25
"""The time between two looks, of who waits for an answer, whether the machine is still there."""

Process = TypeVar("Process", bound=RemoteProcess)

_OnLoss = Callable[["RackMachine", MachineLostError], None]
"""Called once with a machine that has gone, and why."""


class RackMachine:
    """A leased machine. Threads follow it until ``close``: its processes, its clock, and whether it is still there.

    When it has gone, its processes count as killed, who waits for an answer gets none, ``check`` raises
    MachineLostError, and ``on_loss`` is called.
    """

    def __init__(
        self, handle: MachineHandle, lease: LeaseFacts, on_loss: _OnLoss = lambda machine, fault: None
    ) -> None:
        self.name = handle.name
        self.lease = lease
        self._handle = handle
        self._on_loss = on_loss
        self._pulse = Pulse(handle, lease.clock)
        self._questions = ClockQuestions(lease.clock, handle.datagram_socket(), self._call_for_clock)
        self.clock = MachineClock(self._questions.clock_ns)
        self.inputs: set[str] = set()
        """The driver's files that the machine has already."""
        self._lost: MachineLostError | None = None
        self._has_gone = False
        self._taking_down: Pending | None = None
        self._losing = threading.Lock()
        self._running: dict[int, tuple[RemoteProcess, _Ending]] = {}
        self._closing, self._pulse_closing, self._changed = threading.Event(), threading.Event(), threading.Condition()
        self._pulse_thread, *self._threads = [
            threading.Thread(target=self._follow, args=(step, end), name=f"{what} of {self.name}", daemon=True)
            for what, step, end in (
                ("pulse", self._beat, self._pulse_closing),
                ("processes", self._await_ends, self._closing),
                ("clock", self._follow_clock, self._closing),
            )
        ]
        for thread in (self._pulse_thread, *self._threads):
            thread.start()

    def close(self) -> None:
        """Stop following the machine."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        # Without a pulse they would wait for a machine that has gone meanwhile.
        for thread in self._threads:
            thread.join()
        self._pulse_closing.set()
        self._pulse_thread.join()
        self._questions.close()
        self._pulse.close()

    def end_with(self, fault: MachineLostError) -> None:
        """Begin to take the lease down, because another machine has gone: everything here fails with its ``fault``."""
        with self._losing:
            if self._lost is not None:
                return
            self._lost = fault
        with suppress(WanbedError):
            self._taking_down = self._handle.start_call("take_down")
        self._end_all()

    def take_down(self) -> None:
        """Take the lease down, and wait for that. One that has gone has taken itself down, or does."""
        if self._has_gone:
            return
        with suppress(MachineLostError):
            (self._taking_down or self._handle.start_call("take_down")).result()

    def check(self) -> None:
        """Raise MachineLostError if the machine has gone."""
        if self._lost is not None:
            raise self._lost

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the machine. Raise MachineLostError if it has gone."""
        return self.start_call(method, *arguments).result()

    def start_call(self, method: str, *arguments: Any) -> Pending:
        """Send a call and return without waiting for it. Raise MachineLostError if the machine has gone."""
        self.check()
        return _Followed(self, self._handle.start_call(method, *arguments))

    def start(
        self, host: str, program: ProgramOrder, made: Callable[[int], Process], ending: _Ending = lambda _: None
    ) -> Process:
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

    def _follow(self, step: Callable[[], None], closing: threading.Event) -> None:
        try:
            while not closing.is_set() and self._lost is None:
                step()
        except Exception as fault:
            # A process that nobody follows would seem to run for ever.
            if not closing.is_set():
                self._lose(fault)

    def _call_for_clock(self) -> int:
        return int(self.call("clock_ns"))

    def _follow_clock(self) -> None:
        self.clock.meanwhile()
        self._closing.wait(_CLOCK_INTERVAL_S)

    def _beat(self) -> None:
        begin_s = time.monotonic()
        self._pulse.beat()
        self._pulse_closing.wait(max(0.0, begin_s + BEAT_S - time.monotonic()))

    def _await_ends(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._running or self._closing.is_set(), BEAT_S)
            numbers = [*self._running]
        if not numbers:
            return
        for number, status in self.call("wait", numbers, _WAIT_S).items():
            with self._changed:
                process, ending = self._running[number]
            ended_ns = int(self.call("ended_ns", number)) - self.clock.ahead_ns
            ending(status)
            with self._changed:
                self._running.pop(number, None)
            process.end(status, ended_ns)

    def _lose(self, fault: Exception) -> None:
        named = fault if isinstance(fault, MachineLostError) else MachineLostError(f"machine {self.name}: {fault}")
        with self._losing:
            if self._lost is not None:
                return
            self._lost, self._has_gone = named, isinstance(fault, MachineLostError)
        # The others end at once, whatever their driver is about to do.
        self._on_loss(self, named)
        self._end_all()

    def _end_all(self) -> None:
        with self._changed:
            running, self._running = self._running, {}
        for process, _ in running.values():
            process.end(-signal.SIGKILL)


class _Followed:
    """A call whose result is waited for as long as the machine is there."""

    def __init__(self, machine: RackMachine, pending: Pending) -> None:
        self._machine = machine
        self._pending = pending

    def result(self, timeout_s: float | None = None) -> Any:
        """Return the result; see ``wanbed.testbed.rack.machine_handle.Pending``."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = _LOOK_S if until_s is None else min(_LOOK_S, max(0.0, until_s - time.monotonic()))
            try:
                return self._pending.result(left_s)
            except TimeoutError:
                self._machine.check()
                if until_s is not None and time.monotonic() >= until_s:
                    raise
            except WanbedError:
                # Of a machine that was taken down because another one has gone, that one is told.
                self._machine.check()
                raise
