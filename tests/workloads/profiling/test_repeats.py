import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.profiling.repeats import LEAST_REPEATS, repeated


class Machine:
    """Takes ``time_ns`` for every pass, and counts them."""

    def __init__(self, time_ns: int) -> None:
        self.time_ns = time_ns
        self.passes: list[int] = []

    def __call__(self, count: int) -> dict[str, int]:
        self.passes.append(count)
        return {"forward": self.time_ns - 1, "backward": 1}


def test_a_repeat_lasts_about_as_long_as_asked() -> None:
    machine = Machine(30_000_000)
    found = repeated(machine, 7, warmup_ns=100_000_000, repeat_ns=200_000_000)
    assert machine.passes == [1] * 4 + [7] * 7
    assert found == {"forward": (29_999_999,) * 7, "backward": (1,) * 7}


@given(time_ns=st.integers(1, 10**12), warmup_ns=st.integers(0, 10**7), repeat_ns=st.integers(0, 10**9))
def test_there_is_always_a_warm_up_and_one_figure_per_repeat(time_ns: int, warmup_ns: int, repeat_ns: int) -> None:
    machine, text = Machine(time_ns), [0]

    def progress() -> None:
        text[0] += 1

    found = repeated(machine, 9, warmup_ns=warmup_ns, repeat_ns=repeat_ns, progress=progress)
    assert [len(figures) for figures in found.values()] == [9, 9]
    warm_up, measured = machine.passes[:-9], machine.passes[-9:]
    assert len(warm_up) >= 3
    assert len(warm_up) * max(time_ns, 1_000) >= warmup_ns
    assert len(set(measured)) == 1
    assert 1 <= measured[0] <= 64
    assert text == [9]


def test_too_few_repeats_are_refused() -> None:
    with pytest.raises(ValueError, match=rf"^repeats: {LEAST_REPEATS - 1} is below {LEAST_REPEATS}$"):
        repeated(Machine(1), LEAST_REPEATS - 1, warmup_ns=0, repeat_ns=0)
