"""How a trial's ranks are waited for when one of them comes back."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from wanbed.runner.companions.faults.on_hosts.injection import FaultInjector
from wanbed.runner.emulation.rank_processes import RankFaults, run_ranks
from wanbed.testbed.hosts.host_process import Program
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
