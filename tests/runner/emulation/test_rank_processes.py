"""The ranks of a trial are started and waited for, and faults hit them when they are due."""

import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from wanbed.runner.companions.faults.spec import PlannedFault
from wanbed.runner.emulation.rank_processes import FaultInjector, RankFaults, run_ranks
from wanbed.testbed.hosts.failures import Applied, Killable
from wanbed.testbed.hosts.host import Program
from wanbed.testbed.running_testbed import RunningTestbed

LOST = 2


@dataclass(frozen=True)
class Script:
    """A plan whose rank runs a text of Python."""

    rank: int
    text: str
    host: str = "east-0"
    gpu: int = 0

    def write(self, path: Path) -> None:
        path.write_text(self.text)


class KilledAndBack:
    """A fault of one rank, which is started again at once."""

    def __init__(self) -> None:
        self.ranks: Any = None
        self.injected = False

    def attach(self, ranks: Any, hosts: dict[int, str]) -> None:
        self.ranks = ranks

    def begin(self, at_ns: int | None) -> None:
        pass

    def look(self) -> None:
        if not self.injected:
            self.injected = True
            self.ranks.kill(LOST)
            self.ranks.start_again(LOST)

    def wait_s(self, most_s: float) -> float:
        return most_s

    def has_hit(self, rank: int) -> bool:
        return rank == LOST


def start_module(host: str, module: str, arguments: Sequence[str], output: int, **_: object) -> Program:
    return Program([sys.executable, *arguments], stdout=output, stderr=output)


@pytest.mark.parametrize("joined", [False, True], ids=["too late", "joined"])
def test_a_rank_that_comes_back_is_waited_for_only_if_it_has_joined(tmp_path: Path, joined: bool) -> None:
    ended = tmp_path / "ended"
    seconds = 1 if joined else 60
    back = Script(LOST, f"import time; time.sleep({seconds}); open({str(ended)!r}, 'w')")
    testbed = cast("RunningTestbed", SimpleNamespace(check=lambda: None, start_module=start_module))
    plans = [Script(0, ""), Script(1, ""), Script(LOST, "import time; time.sleep(60)")]
    faults = RankFaults(cast("FaultInjector", KilledAndBack()), {LOST}, lambda _: back, lambda _: joined)
    run_ranks(testbed, "module", plans, tmp_path, lambda: None, faults=faults)
    assert ended.exists() == joined


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


def look_at(clock: Clock, faults: FaultInjector, at_s: float) -> None:
    clock.now_ns = round(at_s * S)
    faults.look()


def test_what_is_sent_ahead_is_asked_for_before_its_moment(clock: Clock) -> None:
    asked = Asked(lead_ns=S // 2)
    faults = injector(asked, PlannedFault("host", "west-0", -1, 2 * S, ("west-0",)))
    look_at(clock, faults, 11)
    assert asked.seen == []
    assert faults.wait_s(5) == 0.5
    look_at(clock, faults, 11.5)
    assert asked.seen == ["fail ['west-0'] [1] at 12"]
    assert faults.lost_hosts == {"west-0"}


def test_a_return_waits_for_its_moment_and_comes_before_a_failure_that_is_later(clock: Clock) -> None:
    asked = Asked(lead_ns=S // 2)
    faults = injector(
        asked,
        PlannedFault("rank", "", 1, S, (), back_ns=2 * S),
        PlannedFault("host", "east-0", -1, round(2.2 * S), ("east-0",)),
    )
    look_at(clock, faults, 11.9)
    assert asked.seen == ["fail [] [1] at 11"]
    look_at(clock, faults, 12)
    assert asked.seen[1:] == ["connect []", "start 1", "fail ['east-0'] [0] at 12.2"]


def test_a_gateway_that_fails_kills_nobody(clock: Clock) -> None:
    asked = Asked(lead_ns=0)
    faults = injector(asked, PlannedFault("gateway", "west", -1, S, ("west-0",)))
    look_at(clock, faults, 11)
    assert asked.seen == ["fail ['west-0'] [] at 11"]
    assert faults.has_hit(1)
