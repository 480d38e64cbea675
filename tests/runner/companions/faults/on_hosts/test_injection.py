"""Failures and returns happen in the order of their times; what has to be sent ahead is asked for before its moment."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest

from wanbed.runner.companions.faults.on_hosts.injection import FaultInjector
from wanbed.runner.companions.faults.spec import PlannedFault
from wanbed.testbed.hosts.failures import Applied, Killable

S = 10**9
HOSTS = {0: "east-0", 1: "west-0"}


@dataclass
class Clock:
    """Time that a test sets."""

    now_ns: int = 0


@dataclass
class Asked:
    """Failures that note what is asked of them, and happen at their moment."""

    lead_ns: int
    seen: list[str] = field(default_factory=list)

    def fail(self, hosts: Collection[str], ranks: Mapping[int, str], processes: Killable | None, at_ns: int) -> Applied:
        self.seen.append(f"fail {[*hosts]} {[*ranks]} at {at_ns / S:g}")
        return Applied(at_ns, None)

    def connect_again(self, hosts: Collection[str]) -> None:
        self.seen.append(f"connect {[*hosts]}")


class Ranks:
    """Ranks that come back."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    def kill(self, number: int) -> None:
        raise NotImplementedError

    def pid(self, number: int) -> int:
        raise NotImplementedError

    def start_again(self, number: int) -> None:
        self._asked.seen.append(f"start {number}")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic_ns", lambda: made.now_ns)
    return made


def injector(asked: Asked, *faults: PlannedFault) -> FaultInjector:
    made = FaultInjector(asked, faults)
    made.attach(Ranks(asked), HOSTS)
    made.begin(10 * S)
    return made


def test_what_is_sent_ahead_is_asked_for_before_its_moment(clock: Clock) -> None:
    asked = Asked(lead_ns=S // 2)
    faults = injector(asked, PlannedFault("host", "west-0", -1, 2 * S, ("west-0",)))
    clock.now_ns = 11 * S
    faults.look()
    assert asked.seen == []
    assert faults.wait_s(5) == 0.5
    clock.now_ns = round(11.5 * S)
    faults.look()
    assert asked.seen == ["fail ['west-0'] [1] at 12"]
    assert faults.lost_hosts == {"west-0"}


def test_a_return_waits_for_its_moment_and_comes_before_a_failure_that_is_later(clock: Clock) -> None:
    asked = Asked(lead_ns=S // 2)
    faults = injector(
        asked,
        PlannedFault("rank", "", 1, S, (), back_ns=2 * S),
        PlannedFault("host", "east-0", -1, round(2.2 * S), ("east-0",)),
    )
    clock.now_ns = round(11.9 * S)
    faults.look()
    assert asked.seen == ["fail [] [1] at 11"]
    clock.now_ns = 12 * S
    faults.look()
    assert asked.seen[1:] == ["connect []", "start 1", "fail ['east-0'] [0] at 12.2"]


def test_a_gateway_that_fails_kills_nobody(clock: Clock) -> None:
    asked = Asked(lead_ns=0)
    faults = injector(asked, PlannedFault("gateway", "west", -1, S, ("west-0",)))
    clock.now_ns = 11 * S
    faults.look()
    assert asked.seen == ["fail ['west-0'] [] at 11"]
    assert faults.has_hit(1)
