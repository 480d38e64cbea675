import select
import time
from collections.abc import Iterator

import pytest

from wanbed.workloads.serving.gpu.precise_timer import PreciseTimer


@pytest.fixture
def timer() -> Iterator[PreciseTimer]:
    made = PreciseTimer()
    yield made
    made.close()


def woken(timer: PreciseTimer, within_s: float) -> bool:
    return bool(select.select([timer], [], [], within_s)[0])


def test_it_never_wakes_before_the_moment(timer: PreciseTimer) -> None:
    at_ns = time.monotonic_ns() + 5_000_000
    timer.set(at_ns)
    assert woken(timer, 5)
    assert time.monotonic_ns() >= at_ns


def test_a_moment_that_is_over_wakes_at_once_and_only_once(timer: PreciseTimer) -> None:
    timer.set(0)
    assert woken(timer, 5)
    timer.passed()
    assert not woken(timer, 0)


def test_the_last_setting_holds(timer: PreciseTimer) -> None:
    timer.set(0)
    timer.set(time.monotonic_ns() + 3_600 * 10**9)
    assert not woken(timer, 0.02)


def test_unset_it_does_not_wake(timer: PreciseTimer) -> None:
    timer.passed()
    assert not woken(timer, 0)
