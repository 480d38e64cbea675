"""What fails on several machines is sent to each of them, for one moment of the driver's clock."""

import time
from collections.abc import Sequence
from typing import Any

import pytest

from wanbed.testbed.hosts.failures import Applied
from wanbed.testbed.rack.driver.rack_failures import RackFailures
from wanbed.testbed.rack.machine_handle import MachineLostError

MS = 10**6


class Answer:
    def __init__(self, value: int) -> None:
        self._value = value

    def result(self, timeout_s: float | None = None) -> int:
        return self._value


class Machine:
    """A machine whose clock is ahead; it is ``late`` with what it is told."""

    def __init__(self, ahead_ns: int, late_ns: int = 0) -> None:
        self.clock = type("Clock", (), {"ahead_ns": ahead_ns})()
        self.late_ns = late_ns
        self.failed: list[tuple[Sequence[str], Sequence[int], int]] = []
        self.connected: list[Sequence[str]] = []
        self.gone = False

    def start_call(self, method: str, hosts: Sequence[str], numbers: Sequence[int], at_ns: int) -> Answer:
        assert method == "fail"
        self.failed.append((hosts, numbers, at_ns))
        return Answer(at_ns + self.late_ns)

    def call(self, method: str, hosts: Sequence[str]) -> None:
        assert method == "connect_again"
        if self.gone:
            raise MachineLostError("it has gone")
        self.connected.append(hosts)


class Ranks:
    """Processes of ranks, each with the number after its own on its machine."""

    def pid(self, number: int) -> int:
        return number + 1

    def kill(self, number: int) -> None:
        raise AssertionError(f"rank {number} is not on this machine")


@pytest.fixture
def machines() -> dict[str, Any]:
    return {"one": Machine(5 * MS, 3 * MS), "two": Machine(-7 * MS, 2 * MS), "three": Machine(0)}


@pytest.fixture
def failures(machines: dict[str, Any]) -> RackFailures:
    return RackFailures(machines, {"east-0": "one", "east-1": "one", "east-2": "two", "west-0": "three"})


def test_each_machine_is_told_the_moment_on_its_own_clock(failures: RackFailures, machines: dict[str, Any]) -> None:
    applied = failures.fail(["east-0", "east-1", "east-2"], {3: "east-1"}, Ranks(), 100 * MS)
    assert machines["one"].failed == [(["east-0", "east-1"], [4], 105 * MS)]
    assert machines["two"].failed == [(["east-2"], [], 93 * MS)]
    assert machines["three"].failed == []
    # It happened first on the second machine, 2 ms late.
    assert applied == Applied(102 * MS, "east-2")


def test_what_meets_nobody_happens_here_and_now(failures: RackFailures, machines: dict[str, Any]) -> None:
    asked_ns = time.monotonic_ns()
    applied = failures.fail([], {3: "east-1"}, None, 0)
    assert asked_ns <= applied.time_ns <= time.monotonic_ns()
    assert applied.timed_by is None
    assert machines["one"].failed == []


def test_a_machine_that_has_gone_has_no_hosts_to_connect_again(
    failures: RackFailures, machines: dict[str, Any]
) -> None:
    machines["one"].gone = True
    failures.connect_again(["east-0", "east-2"])
    assert machines["two"].connected == [["east-2"]]
