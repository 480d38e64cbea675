import threading
import time
from pathlib import Path

from tests.support.until import until_within
from wanbed.testbed.hosts.gate_pipes import GatePipes
from wanbed.workloads.start_gate import PIPES, wait_at_gate


def test_ranks_wait_until_the_gate_is_opened_at_its_moment(tmp_path: Path) -> None:
    folder = tmp_path / "trial" / "start"
    gate = GatePipes(folder, PIPES)
    began_ns: list[int] = []

    def rank() -> None:
        wait_at_gate(folder)
        began_ns.append(time.monotonic_ns())

    ranks = [threading.Thread(target=rank) for _ in range(3)]
    for thread in ranks:
        thread.start()
    until_within(10, lambda: gate.arrivals(2, 0.1) == 3)
    assert began_ns == []
    at_ns = time.monotonic_ns() + 100_000_000
    gate.open(at_ns)
    for thread in ranks:
        thread.join(10)
    assert len(began_ns) == 3
    assert min(began_ns) >= at_ns
    gate.close()


def test_who_comes_after_it_has_opened_does_not_wait(tmp_path: Path) -> None:
    gate = GatePipes(tmp_path / "start", PIPES)
    gate.open()
    wait_at_gate(tmp_path / "start")
    gate.close()


def test_nobody_comes(tmp_path: Path) -> None:
    gate = GatePipes(tmp_path / "start", PIPES)
    assert gate.arrivals(0, 0.01) == 0
    gate.close()
