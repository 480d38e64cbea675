import pytest

from runner.emulation.telemetry import load_sampler
from runner.emulation.telemetry.load_sampler import LoadSampler, MachineLoad
from testbed.kernel.machine_load import CpuTimes


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """A machine whose time and ticks the test sets: 100 ticks a second, of which ``busy`` per cent."""
    state = {"now_s": 0.0, "total": 0.0, "idle": 0.0}
    monkeypatch.setattr("time.monotonic", lambda: state["now_s"])
    monkeypatch.setattr(load_sampler, "read_cpu_times", lambda: CpuTimes(round(state["total"]), round(state["idle"])))
    return state


def after(clock: dict[str, float], seconds: float, busy: float) -> None:
    clock["now_s"] += seconds
    clock["total"] += 1000 * seconds
    clock["idle"] += 1000 * seconds * (1 - busy)


def test_windows_in_which_no_core_was_to_spare_are_counted(clock: dict[str, float]) -> None:
    sampler = LoadSampler(lambda: None)
    for busy in (1.0, 0.5, 0.97, 0.1):
        after(clock, 0.3, busy)
        sampler.look()
    load = sampler.load()
    assert load is not None
    assert load.busy == pytest.approx(0.6425, abs=0.01)
    assert load.saturated == 0.5


def test_looking_too_often_closes_no_window(clock: dict[str, float]) -> None:
    sampler = LoadSampler(lambda: None)
    for _ in range(4):
        after(clock, 0.05, 1.0)
        sampler.look()
    assert sampler.load() is None
    after(clock, 0.05, 0.0)
    sampler.look()
    assert sampler.load() == MachineLoad(0.8, 0.0, None)


def test_what_the_network_costs_is_told_as_a_share_of_one_core(clock: dict[str, float]) -> None:
    sampler = LoadSampler(lambda: 7.0 + 0.25 * clock["now_s"])
    after(clock, 2.0, 0.5)
    sampler.look()
    load = sampler.load()
    assert load is not None
    assert load.network == pytest.approx(0.25)
