from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from wanbed.runner.emulation.telemetry.load_sampler import LoadReading, LoadSampler
from wanbed.runner.emulation.telemetry.machines_load_sampler import Loads, MachinesLoadSampler
from wanbed.testbed.kernel.machine_load import CpuTimes


def readings(**busy: tuple[float, ...]) -> list[tuple[int, Loads]]:
    """Of every machine, the times before the first and after each of these windows."""
    idle = dict.fromkeys(busy, 0)
    found: list[tuple[int, Loads]] = [(0, {name: LoadReading(0.0, CpuTimes(0, 0), None) for name in busy})]
    for window in range(len(next(iter(busy.values())))):
        for name, shares in busy.items():
            idle[name] += round(100 * (1 - shares[window]))
        total = 100 * (window + 1)
        found.append((total, {name: LoadReading(1.0, CpuTimes(total, idle[name]), None) for name in busy}))
    return found


def test_the_busiest_machine_counts_for_the_trial() -> None:
    facts = MachinesLoadSampler(dict).facts(readings(node0=(0.25, 0.25), node1=(1.0, 0.5)))
    assert facts["machine_load"] == {"busy": 0.75, "saturated": 0.5, "network": None}
    assert facts["machine_loads"] == {
        "node0": {"busy": 0.25, "saturated": 0.0, "network": None},
        "node1": {"busy": 0.75, "saturated": 0.5, "network": None},
    }


def test_a_trial_that_was_over_in_one_window_has_no_load() -> None:
    assert MachinesLoadSampler(dict).facts(readings(node0=())) == {"machine_load": None, "machine_loads": {}}
    assert MachinesLoadSampler(dict).facts([]) == {"machine_load": None, "machine_loads": {}}


def test_either_this_machine_is_sampled_or_those_of_the_rack() -> None:
    here: Any = SimpleNamespace(network_cpu_time_s=lambda: None, rack=None)
    rack: Any = SimpleNamespace(network_cpu_time_s=lambda: None, rack=SimpleNamespace(cpu_times=dict))
    for testbed, kinds in ((here, (True, False)), (rack, (False, True))):
        found = [kind.of(testbed, ExitStack()) is not None for kind in (LoadSampler, MachinesLoadSampler)]
        assert tuple(found) == kinds
