import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.profiles.repeats import LEAST_REPEATS, Pace, repeated


class Machine:
    """Takes ``time_ns`` for every pass, and counts them."""

    def __init__(self, time_ns: int) -> None:
        self.time_ns = time_ns
        self.passes: list[int] = []

    def __call__(self, count: int) -> dict[str, int]:
        self.passes.append(count)
        return {"forward": self.time_ns - 1, "backward": 1}


def test_a_repeat_lasts_as_long_as_asked() -> None:
    machine = Machine(30_000_000)
    found = repeated(machine, Pace(7, 100_000_000, 200_000_000))
    assert machine.passes == [1] * 4 + [7] * 7
    assert found == {"forward": (29_999_999,) * 7, "backward": (1,) * 7}


@pytest.mark.parametrize("pass_ns", [1_000, 50_000, 2_999_999])
def test_passes_of_any_length_make_a_repeat_that_lasts_as_long_as_asked(pass_ns: int) -> None:
    machine = Machine(pass_ns)
    found = repeated(machine, Pace(7, 0, 200_000_000))
    measured = machine.passes[3:]
    assert 7 * 200_000_000 <= sum(measured) * pass_ns <= 7 * (200_000_000 + 64 * pass_ns)
    assert max(measured) <= 64
    assert found["forward"] == (pass_ns - 1,) * 7


def test_the_figure_of_a_repeat_is_the_mean_of_its_passes() -> None:
    times_ns = iter([10, 10, 10] + 7 * [2_000_000, 4_000_000])
    found = repeated(lambda count: {"forward": next(times_ns)}, Pace(7, 0, 2_000_000 * 64 + 1))
    assert found == {"forward": (3_000_000,) * 7}


def test_passes_that_become_faster_after_the_warm_up_make_more_of_them() -> None:
    machine = Machine(100_000_000)

    def faster(count: int) -> dict[str, int]:
        found = machine(count)
        machine.time_ns = 40_000_000
        return found

    repeated(faster, Pace(7, 0, 200_000_000))
    assert machine.passes == [1] * 3 + [5] * 7


def test_repeats_are_watched_and_the_warm_up_is_not() -> None:
    events: list[str] = []

    @contextmanager
    def watched() -> Iterator[None]:
        events.append("begin")
        yield
        events.append("end")

    def once(count: int) -> dict[str, int]:
        events.append("pass")
        return {"forward": 10}

    repeated(once, Pace(7, 0, 0, watched))
    assert events == ["pass"] * 3 + ["begin"] + ["pass"] * 7 + ["end"]


@given(time_ns=st.integers(1, 10**12), warmup_ns=st.integers(0, 10**7), repeat_ns=st.integers(0, 10**8))
def test_there_is_always_a_warm_up_and_one_figure_per_repeat(time_ns: int, warmup_ns: int, repeat_ns: int) -> None:
    machine, text = Machine(time_ns), [0]

    def progress() -> None:
        text[0] += 1

    found = repeated(machine, Pace(9, warmup_ns, repeat_ns), progress)
    assert [len(figures) for figures in found.values()] == [9, 9]
    warm_ups = max(3, math.ceil(warmup_ns / max(time_ns, 1_000)))
    warm_up, measured = machine.passes[:warm_ups], machine.passes[warm_ups:]
    assert warm_up == [1] * warm_ups
    assert len(set(measured)) == 1
    assert 1 <= measured[0] <= 64
    assert text == [9]


def test_too_few_repeats_are_refused() -> None:
    with pytest.raises(ValueError, match=rf"^repeats: {LEAST_REPEATS - 1} is below {LEAST_REPEATS}$"):
        Pace(LEAST_REPEATS - 1, 0, 0)
