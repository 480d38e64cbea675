"""Ranks that wait at a gate begin together, and nobody waits for ever for one that has failed."""

import errno
import os
import select
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from tests.support.until import until_within
from wanbed.testbed.hosts.start_gate import GatePipes, StartGate
from wanbed.workloads.start_gate import PIPES, wait_at_gate


class Ranks:
    """Ranks as threads, each of which tells when it has begun."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._begun: SimpleQueue[int] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def come(self, rank: int) -> None:
        thread = threading.Thread(target=self._run, args=(rank,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, rank: int) -> None:
        wait_at_gate(self._folder)
        self._begun.put(rank)

    def begun(self, count: int) -> set[int]:
        return {self._begun.get(timeout=30) for _ in range(count)}

    def nobody_has_begun(self) -> bool:
        try:
            self._begun.get(timeout=0.1)
        except Empty:
            return True
        return False


def look_when_somebody_comes(gate: StartGate) -> None:
    readable = select.poll()
    readable.register(gate, select.POLLIN)
    assert readable.poll(30_000)
    gate.look()


def test_all_begin_when_the_last_one_has_come(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path / "start")
    with StartGate(tmp_path / "start", 3, PIPES) as gate:
        gate.look()
        for rank in range(3):
            assert not gate.is_open
            assert ranks.nobody_has_begun()
            ranks.come(rank)
            look_when_somebody_comes(gate)
        assert gate.is_open
        assert ranks.begun(3) == {0, 1, 2}


def test_a_gate_that_is_left_lets_those_begin_who_have_come(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path / "start")
    with StartGate(tmp_path / "start", 2, PIPES) as gate:
        ranks.come(0)
        look_when_somebody_comes(gate)
        assert ranks.nobody_has_begun()
    assert ranks.begun(1) == {0}


def test_whoever_comes_after_it_was_opened_begins_at_once(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path / "start")
    with StartGate(tmp_path / "start", 2, PIPES) as gate:
        gate.open()
        ranks.come(1)
        assert ranks.begun(1) == {1}


def test_a_gate_of_which_one_pipe_cannot_be_opened_keeps_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    os_open = os.open

    def open_once(*arguments: Any) -> int:
        if opened:
            raise OSError(errno.EMFILE, "too many open files")
        opened.append(os_open(*arguments))
        return opened[0]

    monkeypatch.setattr(os, "open", open_once)
    with pytest.raises(OSError, match="too many open files"):
        StartGate(tmp_path / "gate", 1, PIPES)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_what_is_to_begin_with_the_ranks_begins_once_when_all_have_come(tmp_path: Path) -> None:
    ranks, begun = Ranks(tmp_path / "start"), []
    with StartGate(tmp_path / "start", 2, PIPES, lambda: begun.append(ranks.nobody_has_begun())) as gate:
        ranks.come(0)
        look_when_somebody_comes(gate)
        assert begun == []
        ranks.come(1)
        look_when_somebody_comes(gate)
        assert begun == [True]
    assert ranks.begun(2) == {0, 1}
    assert len(begun) == 1


def test_what_is_to_begin_with_the_ranks_does_not_begin_where_one_never_comes(tmp_path: Path) -> None:
    begun: list[int] = []
    with StartGate(tmp_path / "start", 2, PIPES, lambda: begun.append(1)):
        pass
    assert begun == []


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
