from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from runner.emulation.telemetry import load_sampler
from runner.emulation.telemetry.load_sampler import LoadSampler, MachineLoad
from testbed.kernel.machine_load import CpuTimes


def readings(*busy: float) -> list[CpuTimes]:
    """The times before the first and after each of these windows, of 250 ticks each."""
    found = [CpuTimes(0, 0)]
    for share in busy:
        found.append(CpuTimes(found[-1].total_ticks + 250, found[-1].idle_ticks + round(250 * (1 - share))))
    return found


def test_windows_in_which_no_core_was_to_spare_are_counted() -> None:
    load = LoadSampler(lambda: None).load(readings(1.0, 0.5, 0.98, 0.12))
    assert load == MachineLoad(pytest.approx(0.65), 0.5, None)


def test_a_trial_that_was_over_in_one_window_has_no_load() -> None:
    assert LoadSampler(lambda: None).facts([(0, CpuTimes(9, 3))]) == {"machine_load": None}


def test_the_facts_are_those_of_the_load() -> None:
    facts = LoadSampler(lambda: None).facts(list(enumerate(readings(1.0, 0.0))))
    assert facts == {"machine_load": {"busy": 0.5, "saturated": 0.5, "network": None}}


def test_what_the_network_costs_is_reported_as_a_share_of_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"now_s": 10.0}
    monkeypatch.setattr("time.monotonic", lambda: clock["now_s"])
    sampler = LoadSampler(lambda: 7.0 + 0.25 * clock["now_s"])
    clock["now_s"] += 2.0
    load = sampler.load(readings(0.5))
    assert load is not None
    assert load.network == pytest.approx(0.25)


def test_the_load_is_not_sampled_in_virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    testbed = SimpleNamespace(network_cpu_time_s=lambda: None)
    assert LoadSampler.of(testbed, ExitStack()) is not None  # type: ignore[arg-type]
    monkeypatch.setattr(load_sampler, "in_virtual_time", lambda: True)
    assert LoadSampler.of(testbed, ExitStack()) is None  # type: ignore[arg-type]
