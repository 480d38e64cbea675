from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from wanbed.runner.companions.telemetry.on_hosts import load_sampler
from wanbed.runner.companions.telemetry.on_hosts.load_sampler import LoadReading, LoadSampler, SampledLoad, machine_load
from wanbed.testbed.hosts.hosts_here import HostsHere
from wanbed.testbed.kernel.machine_load import CpuTimes
from wanbed.testbed.running_testbed import RunningTestbed

HERE = cast("RunningTestbed", HostsHere())


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
    assert load == SampledLoad(pytest.approx(0.65), 0.5, None)


def facts(**busy: tuple[float, ...]) -> dict[str, Any]:
    """The facts of machines with these windows."""
    of_machines = {name: readings(*windows) for name, windows in busy.items()}
    rounds = zip(*of_machines.values(), strict=True)
    return LoadSampler(HERE).facts([(0, dict(zip(of_machines, each, strict=True))) for each in rounds])


def test_a_trial_that_was_over_in_one_window_has_no_load() -> None:
    assert facts(**{"": ()}) == facts() == {"machine_load": None}
    assert facts(node0=()) == {"machine_load": None, "machine_loads": {}}


def test_the_facts_of_this_machine_are_those_of_its_load() -> None:
    assert facts(**{"": (1.0, 0.0)}) == {"machine_load": {"busy": 0.5, "saturated": 0.5, "network": None}}


def test_of_several_machines_the_busiest_counts_for_the_trial() -> None:
    found = facts(node0=(0.5, 0.5), node1=(1.0, 0.5))
    assert found["machine_load"] == {"busy": 0.75, "saturated": 0.5, "network": None}
    assert found["machine_loads"] == {
        "node0": {"busy": 0.5, "saturated": 0.0, "network": None},
        "node1": {"busy": 0.75, "saturated": 0.5, "network": None},
    }


def test_what_the_network_costs_is_reported_as_a_share_of_one_core() -> None:
    load = machine_load(readings(0.5, 0.5, network_s=7.0))
    assert load is not None
    assert load.network == pytest.approx(0.25)


def test_the_load_is_not_sampled_in_virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LoadSampler.of(HERE, ExitStack()) is not None
    monkeypatch.setattr(load_sampler, "in_virtual_time", lambda: True)
    assert LoadSampler.of(HERE, ExitStack()) is None


def test_all_machines_are_read_at_one_time() -> None:
    cores = {"node0": CpuTimes(9, 3), "node1": CpuTimes(8, 2)}
    testbed = SimpleNamespace(cpu_times=lambda: cores, network_cpu_time_s=lambda: None)
    read = LoadSampler(cast("RunningTestbed", testbed)).read()
    assert {name: reading.cores for name, reading in read.items()} == cores
    assert len({reading.time_s for reading in read.values()}) == 1
