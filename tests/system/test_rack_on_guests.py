"""A run over two machines with kernels, cards and netem of their own, which User-Mode Linux guests play."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from results import load
from results.reading.run import Run
from runner.emulation.emulation import BringUp
from runner.emulation.one_machine import on_this_machine
from runner.emulation.trials import run_trials
from runner.planner.experiment_file import parse_experiment
from runner.resolve.experiment import SweepPoint
from runner.runs.run_folder import begin_run
from testbed.rack.rack_testbed import rack_testbed
from testbed.running_testbed import RunningTestbed
from testbed.substrate.offer import GUEST
from testbed.substrate.probe import probe_guest
from tests.support.rack.rack_machine import RackMachine, guest_machines

DILATION = 2.0
MACHINE_OF = {"east-0": "node0", "west-0": "node1"}
EXPERIMENT: dict[str, Any] = {
    "name": "guests",
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "20ms", "rate": "40Mbit"},
    },
    "compute": {"forward": "40ms", "backward": "80ms", "activation": "256KiB"},
    "training": {"microbatches": 4, "iterations": 4, "warmup": 1},
    "variants": [{"name": "1f1b", "schedule": "1f1b"}],
}


@pytest.fixture(scope="module", autouse=True)
def _offered() -> None:
    offer = probe_guest()
    if not offer.available:
        pytest.skip(f"no User-Mode Linux: {offer.reason}")


@pytest.fixture(scope="module")
def machines() -> Iterator[list[RackMachine]]:
    with guest_machines(2) as running:
        yield running


def run(up: BringUp, runs: Path) -> Run:
    parsed = parse_experiment(EXPERIMENT, "test", Path())
    store = begin_run(parsed, runs, {"dilation": DILATION, "capacity_bps": None})
    run_trials(parsed, store, bring_up=up, log=print)
    return load(store.path)


def iteration_time_s(run: Run) -> float:
    return float(run.summary.iteration_time_s.iloc[0])


@pytest.mark.measures
def test_a_run_over_machines_takes_as_long_as_on_one(machines: list[RackMachine], tmp_path: Path) -> None:
    def over(point: SweepPoint, dilation: float) -> AbstractContextManager[RunningTestbed]:
        handles = [machine.handle for machine in machines]
        return rack_testbed(point.topology.dilated(dilation), handles, MACHINE_OF, root=tmp_path / "driver", log=print)

    rack = run(over, tmp_path / "rack")
    here = run(on_this_machine(GUEST, "test", print), tmp_path / "here")
    assert rack.calibration.within_tolerance.all()
    # All guests share this machine's cores. Where these were missing, the times are theirs, as the trials say.
    if not (here.summary.saturated.any() or rack.summary.saturated.any()):
        print(f"an iteration: {iteration_time_s(rack):.3f} s over machines, {iteration_time_s(here):.3f} s on one")
        # Wide enough for whoever shares the cores; on a quiet machine they are a few per cent apart.
        assert iteration_time_s(rack) == pytest.approx(iteration_time_s(here), rel=0.2)
    (trial,) = rack.trials
    # Machines of their own have clocks of their own.
    assert all(0 < clock["error_ns"] < 20e6 for clock in trial.facts["clocks"].values())
    assert len(rack.link_samples) > 10
    assert set(rack.tcp_samples.source) == {"east-0", "west-0"}
