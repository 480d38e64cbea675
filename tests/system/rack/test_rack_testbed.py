"""A network over several machines, which processes in namespaces of this one play: who holds it, and how it ends."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.rack.driving import MACHINE_OF, two_hosts
from tests.support.rack.guests.guest_machine import ROOT
from tests.support.rack.rack_machine import RackMachine, namespace_machines
from tests.support.runner.brought_up import BringUp, networks
from tests.support.until import until_within
from wanbed.ground.errors import MissingError
from wanbed.module_process import module_command
from wanbed.results import load
from wanbed.runner.emulation.emulation import run_trials
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.runs.run_folder import begin_run
from wanbed.testbed.claims.processes import marked_processes
from wanbed.testbed.claims.registry import claims
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.rack.machine_handle import MachineLostError, RunOrder
from wanbed.testbed.rack.machine_plan import VXLAN, WIREGUARD
from wanbed.testbed.rack.rack_testbed import RackPlacement, rack_testbed
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.testbed.testbed import bring_up

LEASE_S = 3.0
EXPERIMENT: dict[str, Any] = {
    "name": "two datacenters",
    # The machines may lack netem: nearly nothing is to be emulated.
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "100us"},
    },
    "compute": {"forward": "5ms", "backward": "10ms", "activation": "64KiB"},
    "training": {"microbatches": 4, "iterations": 3, "warmup": 1},
    "variants": [{"name": "gpipe", "schedule": "gpipe"}],
    "dilation": 1,
}


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[RackMachine]]:
    with namespace_machines(2, tmp_path, lease_s=LEASE_S) as running:
        yield running


def over(machines: list[RackMachine], tmp_path: Path, overlay: str = VXLAN) -> BringUp:
    def up(topology: Topology) -> AbstractContextManager[RunningTestbed]:
        return rack_testbed(
            topology,
            [machine.handle for machine in machines],
            RackPlacement(MACHINE_OF),
            RunOrder("two datacenters", overlay, shaped=False),
            root=tmp_path / "driver",
        )

    return up


def run(experiment: Mapping[str, Any], up: BringUp, runs: Path, *, keep_gradients: bool = False) -> Path:
    parsed = parse_experiment(experiment, "test", Path())
    store = begin_run(parsed, runs, {"dilation": 1.0, "capacity_bps": None})
    run_trials(parsed, store, network_of=networks(up), log=lambda _: None, keep_gradients=keep_gradients)
    return store.path


def leases(machine: RackMachine) -> list[str]:
    return [held.record.identifier for held in claims(machine.claims)]


@pytest.mark.parametrize(
    ("overlay", "mtu_bytes"), [(VXLAN, 1450), pytest.param(WIREGUARD, 1390, marks=pytest.mark.soak)]
)
def test_an_experiment_over_two_machines_leaves_a_run_like_any_other(
    machines: list[RackMachine], tmp_path: Path, overlay: str, mtu_bytes: int
) -> None:
    stored = load(run(EXPERIMENT, over(machines, tmp_path, overlay), tmp_path / "runs"))
    (row,) = stored.summary.to_dict("records")
    # Four microbatches and a bubble, each forwards and backwards; transfers and whoever shares the machine add to it.
    assert 0.075 < row["iteration_time_s"] < 1
    assert stored.manifest["substrate"]["name"] == "rack"
    assert stored.manifest["rack"]["machines"].keys() == {"space0", "space1"}
    assert (stored.manifest["rack"]["overlay"], stored.manifest["rack"]["mtu_bytes"]) == (overlay, mtu_bytes)
    assert stored.manifest["rack_hosts"] == {"0": {"space0": ["east-0"], "space1": ["west-0"]}}
    assert stored.calibration.measured_short_ms.isna().all()
    (trial,) = stored.trials
    clocks, loads = trial.facts["clocks"], trial.facts["machine_loads"]
    # Both have this machine's clock.
    assert all(abs(clock["offset_ns"]) <= clock["error_ns"] for clock in clocks.values())
    assert clocks.keys() == {"space0", "space1"} >= loads.keys()
    starts = stored.spans[stored.spans.kind == "forward"].groupby("host", observed=True).start_ns.min()
    assert starts["east-0"] < starts["west-0"]
    assert len(stored.tcp_samples) >= 0
    assert [leases(machine) for machine in machines] == [[], []]
    assert not (tmp_path / "driver").exists() or not claims(tmp_path / "driver")


@contextmanager
def on_one_machine(topology: Topology) -> Iterator[RunningTestbed]:
    with bring_up(topology, shaped=False) as testbed:
        yield testbed


@pytest.mark.soak
def test_training_over_machines_learns_bit_by_bit_what_training_on_one_does(
    machines: list[RackMachine], tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_bytes(bytes(range(256)) * 8)
    trained = {
        **EXPERIMENT,
        "model": {"layers": 2, "hidden": 32, "context": 16, "heads": 2, "vocabulary": 256},
        "compute": {"kind": "torch", "device": "cpu", "checkpointing": False},
        "training": {"microbatches": 2, "iterations": 3, "warmup": 1, "text": str(text)},
        "variants": [{"name": "1f1b", "schedule": "1f1b"}, {"name": "torch's", "schedule": "torch-1f1b"}],
    }
    stored = []
    for name, up in (("here", on_one_machine), ("rack", over(machines, tmp_path))):
        stored.append(load(run(trained, up, tmp_path / name, keep_gradients=True)))
    here, rack = stored
    for one, other in zip(here.trials, rack.trials, strict=True):
        assert len(one.facts["losses"]) == 3
        assert one.facts["losses"] == other.facts["losses"]
    kept = sorted(path.relative_to(here.path) for path in here.path.glob("gradients/**/*.npz"))
    assert len(kept) == 4
    for path in kept:
        one, other = np.load(here.path / path), np.load(rack.path / path)
        assert [*one] == [*other]
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_a_machine_carries_one_run_at_a_time(machines: list[RackMachine], tmp_path: Path) -> None:
    placement = RackPlacement(MACHINE_OF)
    handles = [machine.handle for machine in machines]
    with (
        rack_testbed(two_hosts(), handles, placement, RunOrder("the first", shaped=False), root=tmp_path / "driver"),
        pytest.raises(MissingError, match=r"^machine space0: it is leased to the run the first"),
        rack_testbed(two_hosts(), handles, placement, RunOrder("the second", shaped=False), root=tmp_path / "other"),
    ):
        pass
    with rack_testbed(two_hosts(), handles, placement, RunOrder("a third", shaped=False), root=tmp_path / "driver"):
        pass


@pytest.mark.parametrize("overlay", [VXLAN, pytest.param(WIREGUARD, marks=pytest.mark.soak)])
def test_of_a_driver_that_was_killed_nothing_is_left_on_any_machine(
    machines: list[RackMachine], tmp_path: Path, overlay: str
) -> None:
    places = json.dumps([machine.place for machine in machines])
    driver = subprocess.Popen(
        module_command("tests.support.rack.driving", places, str(tmp_path / "driver"), overlay),
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == b"up\n"
    held = [identifier for machine in machines for identifier in leases(machine)]
    assert len(held) == 2
    assert all(marked_processes(identifier) for identifier in held)
    assert [tunnels(identifier) for identifier in held] == [int(overlay == WIREGUARD)] * 2
    driver.kill()
    driver.wait()
    driver.stdout.close()
    until_within(LEASE_S + 10, lambda: not any(leases(machine) for machine in machines))
    assert not any(marked_processes(identifier) for identifier in held)
    until_within(10, lambda: not claims(tmp_path / "driver"))
    # The machines are there for the next run.
    handles = [machine.handle for machine in machines]
    order = RunOrder(overlay=overlay, shaped=False)
    again = rack_testbed(two_hosts(), handles, RackPlacement(MACHINE_OF), order, root=tmp_path / "driver")
    with again as testbed:
        assert testbed.stacks.echoes("east-0", "west-0", 3).lost == 0


def tunnels(identifier: str) -> int:
    """How many of a lease's processes are wireguard-go."""
    names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in marked_processes(identifier)]
    return names.count("wireguard-go")


@pytest.mark.soak
def test_a_machine_that_is_killed_leaves_nothing_and_ends_the_trial_with_its_name(
    machines: list[RackMachine], tmp_path: Path
) -> None:
    held: list[str] = []

    def kill_when_training() -> None:
        until_within(60, lambda: len(marked(machines[1])) > 0)
        held.extend(identifier for machine in machines for identifier in leases(machine))
        machines[1].pull_the_plug()

    killer = threading.Thread(target=kill_when_training)
    killer.start()
    endless = {**EXPERIMENT, "training": {"microbatches": 4, "iterations": 1000, "warmup": 1}}
    with pytest.raises(MachineLostError, match=r"^machine space1 has gone: its process does not answer$"):
        run(endless, over(machines, tmp_path), tmp_path / "runs")
    killer.join()
    assert leases(machines[0]) == []
    until_within(10, lambda: not leases(machines[1]))
    assert not any(marked_processes(identifier) for identifier in held)


def marked(machine: RackMachine) -> list[int]:
    """The ranks on a machine."""
    found = []
    for identifier in leases(machine):
        for pid in marked_processes(identifier):
            command = Path(f"/proc/{pid}/cmdline")
            if command.exists() and b"wanbed.workloads.rank" in command.read_bytes():
                found.append(pid)
    return found
