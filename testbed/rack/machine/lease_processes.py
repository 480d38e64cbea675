"""Run the processes of a lease on this machine, each with its output in a file, and let them and hosts fail."""

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from wanbed.testbed.hosts.host import HostProcess, NetworkHost
from wanbed.testbed.hosts.host_attachment import HostEnd, connect_again, cut_off
from wanbed.testbed.rack.machine_plan import MachinePlan

Start = Callable[[int], "HostProcess | subprocess.Popen[Any]"]
"""Starts a process whose standard output and error go to the given descriptor."""


@dataclass
class _Running:
    process: "HostProcess | subprocess.Popen[Any]"
    output: Path
    ended: int = field(init=False)
    ended_ns: int = field(init=False, default=0)
    noting: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        # A child that nobody has waited for keeps its PID.
        self.ended = os.pidfd_open(self.process.pid)
        self.noting = threading.Thread(target=self._note_end, name="end of a process", daemon=True)
        self.noting.start()

    def _note_end(self) -> None:
        end = select.poll()
        end.register(self.ended, select.POLLIN)
        end.poll()
        self.ended_ns = time.monotonic_ns()


class LeaseProcesses:
    """Processes by number. ``folder`` receives their output."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()
        self._running: dict[int, _Running] = {}
        # A process that dies with its parent dies with the thread that started it: this one, which calls do not end.
        self._starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starter")

    def start(self, start: Start) -> int:
        """Start a process and return its number."""
        return self._starter.submit(self._start, start).result()

    def _start(self, start: Start) -> int:
        number = next(self._numbers)
        output = self._folder / f"output-{number}"
        with output.open("wb") as file:
            process = start(file.fileno())
        self._running[number] = _Running(process, output)
        return number

    def wait(self, numbers: Sequence[int], timeout_s: float) -> dict[int, int]:
        """Return the exit status of each of these that has ended, negative for a signal; wait until one has."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = {number: self._running[number].process.poll() for number in numbers}
            ended = {number: status for number, status in found.items() if status is not None}
            left_s = deadline - time.monotonic()
            if ended or left_s <= 0:
                return ended
            ends = select.poll()
            for number in numbers:
                ends.register(self._running[number].ended, select.POLLIN)
            ends.poll(left_s * 1000)

    def ended_ns(self, number: int) -> int:
        """Return when a process has ended, by this machine's clock; wait until it has."""
        running = self._running[number]
        running.noting.join()
        return running.ended_ns

    def output(self, number: int, offset: int) -> bytes:
        """Return what a process has printed from this byte on."""
        with self._running[number].output.open("rb") as file:
            file.seek(offset)
            return file.read()

    def kill(self, number: int, number_of_signal: int) -> None:
        """Send a signal to a process, if it still runs."""
        process = self._running[number].process
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number_of_signal)

    def close(self) -> None:
        """Kill and reap every process, and release what was kept for them."""
        running, self._running = self._running, {}
        for each in running.values():
            if each.process.poll() is None:
                with suppress(ProcessLookupError):
                    os.kill(each.process.pid, signal.SIGKILL)
            each.process.wait()
            each.noting.join()
            os.close(each.ended)
        self._starter.shutdown()


class MachineFailures:
    """The failures of a machine that carries ``hosts`` by ``plan``. Only emulated interfaces go down, never a card."""

    def __init__(self, plan: MachinePlan, hosts: Mapping[str, NetworkHost], processes: LeaseProcesses) -> None:
        self._plan = plan
        self._hosts = hosts
        self._processes = processes

    def fail(self, hosts: Sequence[str], numbers: Sequence[int], at_ns: int) -> int:
        """Cut hosts off, then kill processes, at this moment or now if it has passed. Return when that began."""
        ends = self._ends(hosts)
        time.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)
        began_ns = time.monotonic_ns()
        # First of all, so that the kernel of a host that fails tells nobody of its processes' end.
        cut_off(ends)
        for number in numbers:
            self._processes.kill(number, signal.SIGKILL)
        return began_ns

    def connect_again(self, hosts: Sequence[str]) -> None:
        """Take the hosts' interfaces up again."""
        connect_again(self._ends(hosts))

    def _ends(self, hosts: Sequence[str]) -> list[HostEnd]:
        ports = {port.host: port for port in self._plan.host_ports}
        return [HostEnd(self._hosts[host].namespace, self._plan.gateway, ports[host], stays_up=False) for host in hosts]
