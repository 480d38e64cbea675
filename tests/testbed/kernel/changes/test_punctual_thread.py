"""A punctual thread goes on when it should, and is told what priority it has."""

import os
import sys
import threading
import time

import pytest

from wanbed.testbed.kernel.changes import punctual_thread
from wanbed.testbed.kernel.changes.punctual_thread import punctual, wait_until

MS = 10**6


def test_it_goes_on_at_its_time_and_never_before() -> None:
    for ahead_ns in (-5 * MS, 0, 500_000, 3 * MS):
        due_ns = time.monotonic_ns() + ahead_ns
        assert not wait_until(due_ns, threading.Event())
        assert time.monotonic_ns() >= due_ns


@pytest.mark.parametrize("left_ms", [3_600_000, 1])
def test_it_goes_on_at_once_when_it_is_stopped(left_ms: int) -> None:
    stopped = threading.Event()
    stopped.set()
    assert wait_until(time.monotonic_ns() + left_ms * MS, stopped)


def test_in_virtual_time_it_only_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """There a thread that watches the clock would watch it for ever: nothing moves the clock but sleep."""
    clock_ns = 0

    class Stopped(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            nonlocal clock_ns
            assert timeout is not None
            # Each sleep is a rounding error short, until the last.
            clock_ns += max(1, round(timeout * 1e9) - 3)
            return False

    monkeypatch.setattr(punctual_thread, "in_virtual_time", lambda: True)
    monkeypatch.setattr(punctual_thread.time, "monotonic_ns", lambda: clock_ns)
    assert not wait_until(5 * MS, Stopped())
    assert 5 * MS <= clock_ns <= 5 * MS + 3


def test_it_has_a_real_time_priority_where_that_is_allowed_and_says_so_where_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[tuple[bool, int]] = []

    def run() -> None:
        with punctual() as real_time:
            told.append((real_time, os.sched_getscheduler(0)))

    def in_a_thread() -> None:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    in_a_thread()

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    in_a_thread()
    (allowed, policy), refused = told
    assert allowed == (policy == os.SCHED_FIFO)
    assert refused == (False, os.SCHED_OTHER)
    assert os.sched_getscheduler(0) == os.SCHED_OTHER, "this thread keeps its own"


def test_the_interpreter_switches_threads_as_before_afterwards() -> None:
    before_s = sys.getswitchinterval()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_setscheduler", lambda *_: None)
        with punctual():
            assert sys.getswitchinterval() < before_s
    assert sys.getswitchinterval() == before_s
