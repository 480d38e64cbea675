"""The gate of several machines: when it opens, and what begins with it."""

import select
import time
from typing import Any, cast

from tests.support.until import until_within
from wanbed.testbed.rack.driver.rack_gate import LEAD_NS, CommonStart, RackGate
from wanbed.testbed.rack.machine_handle import MachineLostError

AHEAD_NS = {"a": 5 * 10**12, "b": -7}
MACHINE_OF = {"east-0": "a", "east-1": "a", "west-0": "b"}


class Opened:
    def __init__(self, fault: Exception | None = None) -> None:
        self._fault = fault

    def result(self, timeout_s: float | None = None) -> None:
        if self._fault is not None:
            raise self._fault


class Clock:
    def __init__(self, ahead_ns: int) -> None:
        self.ahead_ns = ahead_ns


class Machine:
    """A machine at whose part of the gate ``arrived`` ranks have come."""

    def __init__(self, name: str) -> None:
        self.name, self.handle, self.clock = name, self, Clock(AHEAD_NS[name])
        self.arrived = 0
        self.opened_ns: list[int] = []
        self.calls: list[str] = []
        self.gone = False

    def call(self, method: str, *_: Any) -> int:
        self.calls.append(method)
        if method == "await_gate":
            time.sleep(0.001)
        return self.arrived

    def start_call(self, method: str, _: str, at_ns: int) -> Opened:
        assert method == "open_gate"
        self.opened_ns.append(at_ns)
        return Opened(MachineLostError("it has gone") if self.gone else None)


def gate_of(machines: list[Machine], start: CommonStart, **options: Any) -> RackGate:
    return RackGate(
        cast("Any", {each.name: each for each in machines}),
        MACHINE_OF,
        [*MACHINE_OF],
        "trial/start",
        ("met", "begin"),
        start=start,
        **options,
    )


def await_all(gate: RackGate, machines: list[Machine]) -> None:
    """Let all ranks come, and wait until the gate knows."""
    for machine in machines:
        machine.arrived = sum(name == machine.name for name in MACHINE_OF.values())
    assert select.select([gate], [], [], 60)[0]
    until_within(60, lambda: gate.is_complete)


def test_all_machines_open_at_one_instant_which_is_that_of_what_begins_with_them() -> None:
    machines, start, agreed_ns = [Machine("a"), Machine("b")], CommonStart(), []
    with gate_of(machines, start, begin=lambda: agreed_ns.append(start.at_ns(10**10))) as gate:
        gate.look()
        assert not gate.is_open
        assert agreed_ns == []
        await_all(gate, machines)
        gate.look()
        assert gate.is_open
    assert len(agreed_ns) == 1
    assert {name: [at_ns - AHEAD_NS[name] for at_ns in machine.opened_ns] for name, machine in by_name(machines)} == {
        "a": agreed_ns,
        "b": agreed_ns,
    }
    assert all(machine.calls[-1] == "remove_gate" for machine in machines)


def by_name(machines: list[Machine]) -> list[tuple[str, Machine]]:
    return [(machine.name, machine) for machine in machines]


def test_a_gate_that_does_not_open_itself_waits_to_be_opened() -> None:
    machines = [Machine("a"), Machine("b")]
    with gate_of(machines, CommonStart(), opens_itself=False) as gate:
        await_all(gate, machines)
        gate.look()
        assert not gate.is_open
        asked_ns = time.monotonic_ns()
        gate.open()
        assert gate.is_open
    assert machines[0].opened_ns[0] - AHEAD_NS["a"] == machines[1].opened_ns[0] - AHEAD_NS["b"] > asked_ns


def test_a_gate_that_is_opened_before_all_have_come_opens_at_once() -> None:
    machines = [Machine("a"), Machine("b")]
    machines[1].gone = True
    with gate_of(machines, CommonStart()) as gate:
        gate.open()
    assert [machine.opened_ns for machine in machines] == [[0], [0]]


def test_who_asks_shortly_after_another_one_is_given_the_same_instant() -> None:
    start = CommonStart()
    asked_ns = time.monotonic_ns()
    # A long lead, so that a busy machine does not let it pass.
    at_ns = start.at_ns(10**10)
    assert at_ns >= asked_ns + 10**10
    assert start.at_ns() == at_ns
    assert start.is_to_come()


def test_an_instant_that_has_nearly_come_is_followed_by_a_later_one() -> None:
    start = CommonStart()
    first_ns = start.at_ns(0)
    assert not start.is_to_come()
    asked_ns = time.monotonic_ns()
    assert start.at_ns() >= asked_ns + LEAD_NS > first_ns
