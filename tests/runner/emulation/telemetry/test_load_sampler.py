from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from wanbed.runner.emulation.telemetry import load_sampler
from wanbed.runner.emulation.telemetry.load_sampler import LoadReading, LoadSampler, MachineLoad, machine_load
from wanbed.testbed.kernel.machine_load import CpuTimes


def readings(*busy: float, network_s: float | None = None) -> list[LoadReading]:
    """The times before the first and after each of these windows, of 250 ms each."""
    found = [LoadReading(10.0, CpuTimes(0, 0), network_s)]
    for share in busy:
        before = found[-1].cores
        cores = CpuTimes(before.total_ticks + 250, before.idle_ticks + round(250 * (1 - share)))
        spent_s = None if network_s is None else network_s + len(found) * 0.25 * 0.25
        found.append(LoadReading(10.0 + 0.25 * len(found), cores, spent_s))
    return found


def test_windows_in_which_no_core_was_to_spare_are_counted() -> None:
    load = machine_load(readings(1.0, 0.5, 0.98, 0.12))
    assert load == MachineLoad(pytest.approx(0.65), 0.5, None)


def test_a_trial_that_was_over_in_one_window_has_no_load() -> None:
    assert LoadSampler(lambda: None).facts([(0, LoadReading(0, CpuTimes(9, 3), None))]) == {"machine_load": None}


def test_the_facts_are_those_of_the_load() -> None:
    facts = LoadSampler(lambda: None).facts(list(enumerate(readings(1.0, 0.0))))
    assert facts == {"machine_load": {"busy": 0.5, "saturated": 0.5, "network": None}}


def test_what_the_network_costs_is_reported_as_a_share_of_one_core() -> None:
    load = machine_load(readings(0.5, 0.5, network_s=7.0))
    assert load is not None
    assert load.network == pytest.approx(0.25)


def test_the_load_is_not_sampled_in_virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    testbed = SimpleNamespace(network_cpu_time_s=lambda: None, rack=None)
    assert LoadSampler.of(testbed, ExitStack()) is not None  # type: ignore[arg-type]
    monkeypatch.setattr(load_sampler, "in_virtual_time", lambda: True)
    assert LoadSampler.of(testbed, ExitStack()) is None  # type: ignore[arg-type]
