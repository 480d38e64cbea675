import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.until import until_within
from wanbed.testbed.rack.machine.lease_processes import LeaseProcesses


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[LeaseProcesses]:
    running = LeaseProcesses(tmp_path)
    yield running
    running.close()


def shell(script: str, started: list[subprocess.Popen[Any]] | None = None) -> Any:
    def start(output: int) -> subprocess.Popen[Any]:
        made = subprocess.Popen(["sh", "-c", script], stdout=output, stderr=output)
        if started is not None:
            started.append(made)
        return made

    return start


def test_a_process_has_a_number_an_output_and_a_status(processes: LeaseProcesses) -> None:
    numbers = [processes.start(shell(f"echo {number}; exit {number}")) for number in range(3)]
    for number in numbers:
        assert processes.wait([number], 10) == {number: number}
        assert processes.output(number, 0) == b"%d\n" % number
        assert processes.output(number, 2) == b""


def test_waiting_ends_with_the_first_end_or_in_time(processes: LeaseProcesses) -> None:
    slow, quick = processes.start(shell("sleep 100")), processes.start(shell("exit 0"))
    assert processes.wait([slow, quick], 10) == {quick: 0}
    assert processes.wait([slow], 0.05) == {}
    processes.kill(slow, 15)
    assert processes.wait([slow], 10) == {slow: -15}
    processes.kill(slow, 15)


def test_the_end_of_a_process_is_timed_when_nobody_waits_for_it(processes: LeaseProcesses) -> None:
    number = processes.start(shell("exit 0"))
    ended_ns = processes.ended_ns(number)
    assert ended_ns <= time.monotonic_ns()
    assert processes.wait([number], 10) == {number: 0}
    assert processes.ended_ns(number) == ended_ns


def test_a_process_outlives_the_thread_that_asked_for_it(processes: LeaseProcesses) -> None:
    numbers: list[int] = []
    asking = threading.Thread(target=lambda: numbers.append(processes.start(tied_to_its_thread)))
    asking.start()
    asking.join()
    assert processes.wait(numbers, 0.3) == {}


def tied_to_its_thread(output: int) -> subprocess.Popen[Any]:
    """A process that ends with the thread that has started it, as ranks do."""
    return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "sleep", "100"], stdout=output, stderr=output)


def test_the_end_kills_what_still_runs(tmp_path: Path) -> None:
    processes, started = LeaseProcesses(tmp_path), list[subprocess.Popen[Any]]()
    processes.start(shell("sleep 100", started))
    processes.close()
    until_within(10, lambda: started[0].poll() == -9)
