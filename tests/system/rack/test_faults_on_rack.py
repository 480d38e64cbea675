"""Ranks, hosts and gateways fail on the machines of a rack, which processes in namespaces of this one play."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.rack.rack_machine import RackMachine, namespace_machines
from tests.support.ray.machine_namespaces import NamespaceMachine
from tests.support.ray.machine_remains import command_of, processes_on
from tests.support.ray.ray_cluster import (
    RayCluster,
    two_nodes,  # noqa: F401 - a fixture
)
from tests.support.runner.small_experiment import sweep_point
from tests.support.until import until_within
from wanbed.results import load
from wanbed.runner.emulation.running_trial import TrialSpec
from wanbed.runner.emulation.trial import run_trial
from wanbed.runner.resolve.connections import count_connections
from wanbed.testbed.claims.processes import MARKER, marked_processes
from wanbed.testbed.rack.machine_handle import RunOrder
from wanbed.testbed.rack.rack_testbed import RackPlacement, RackTestbed, rack_testbed

MACHINE_OF = {"east-0": "space0", "east-1": "space1", "west-0": "space2"}
CLOCKS_AHEAD_S = (1000, 2000, 0)
TOPOLOGY: dict[str, Any] = {
    # The machines may lack netem: nearly nothing is to be emulated.
    "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 1}],
    "wan": {"latency": "100us"},
}
TRAINED: dict[str, Any] = {
    "topology": TOPOLOGY,
    "model": {"hidden": 32, "context": 32, "layers": 6, "heads": 2, "vocabulary": 256},
    "compute": {"kind": "torch", "device": "cpu"},
    "training": {"microbatches": 2, "iterations": 4, "precision": "fp32"},
    "dilation": 1,
}
STAR: dict[str, Any] = {
    "name": "star",
    "topology": TOPOLOGY,
    "model": {"layers": 6, "hidden": 64, "context": 64, "heads": 4, "vocabulary": 1000},
    "compute": {"forward": "6ms", "backward": "12ms", "optimizer": "1ms"},
    "training": {"pipelines": 3, "microbatches": 4, "iterations": 20, "warmup": 2},
    "variants": [
        {
            "name": "atom",
            "schedule": "atom",
            "options": {"sync_every": 2, "quorum": 2, "swap": "500MB/s", "memory": "8MB", "wire": "int8"},
        }
    ],
    "engine": "rack",
    "dilation": 1,
}
UNSHAPED_RUN = ("-m", "tests.support.ray.unshaped_run")
LEFT_S = 30.0


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RackMachine]]:
    with namespace_machines(3, tmp_path_factory.mktemp("machines"), clocks_ahead_s=CLOCKS_AHEAD_S) as running:
        yield running


@pytest.fixture
def testbed(machines: list[RackMachine], tmp_path: Path) -> Iterator[RackTestbed]:
    point = sweep_point({"topology": TOPOLOGY})
    handles = [machine.handle for machine in machines]
    placement, run = RackPlacement(MACHINE_OF), RunOrder(shaped=False)
    with rack_testbed(point.topology, handles, placement, run, root=tmp_path / "driver") as up:
        yield up


def losses(testbed: RackTestbed, **changes: Any) -> tuple[list[float], dict[str, Any] | None]:
    """The losses of three stages that torch trains, and what failed meanwhile."""
    point = sweep_point({**TRAINED, **changes})
    (variant,) = point.variants
    connections = count_connections(point.topology, variant.pairs, variant.transport)
    record = run_trial(testbed, TrialSpec(point.trials()[0], point, 1.0, connections))
    return list(record.facts["losses"]), record.facts.get("faults")


@pytest.mark.soak
def test_losses_go_on_with_the_checkpoint_of_a_host_that_is_gone(testbed: RackTestbed) -> None:
    undisturbed, _ = losses(testbed)
    found, faults = losses(testbed, fail=[{"host": "east-1", "at": "60ms"}], recovery="restart")
    assert faults is not None
    assert faults["outcome"] == "recovered"
    # Each machine has written one stage of three; two of them begin again, with two.
    assert len(faults["placements"][-1]) == 2
    assert found == pytest.approx(undisturbed, rel=1e-5)
    (injected,) = faults["injected"]
    assert injected["applied_ns"] >= injected["due_ns"] - injected["clock_error_ns"]
    (each,) = faults["disturbances"]
    # The clocks of the machine that failed and of those that knew are a quarter of an hour apart.
    assert 7 < each["time_to_detect_ns"] / 1e9 < 60
    # The next trial has every host again, and no checkpoint.
    again, _ = losses(testbed)
    assert again == undisturbed
    assert testbed.shared(testbed.folder / "trial").names("attempt-*/after-*/stage-*") == set()


def test_a_gateway_fails_with_each_machines_part_of_it_and_is_whole_again(testbed: RackTestbed) -> None:
    east = ["east-0", "east-1"]
    assert testbed.failures.fail(east, {}, None, 0).timed_by in east
    assert [testbed.stacks.echoes("west-0", host, 2).lost for host in east] == [1, 1]
    testbed.failures.connect_again(east)
    assert [testbed.stacks.echoes("west-0", host, 2).lost for host in east] == [0, 0]
    assert testbed.stacks.echoes("east-0", "east-1", 2).lost == 0


@pytest.mark.soak
def test_a_replica_that_is_killed_comes_back_on_its_machine(
    two_nodes: RayCluster,  # noqa: F811
    tmp_path: Path,
) -> None:
    # The others train for about fifteen seconds: a process that starts on a busy machine finds them training.
    training = {**STAR["training"], "iterations": 200}
    document = json.dumps({**STAR, "training": training, "fail": [{"rank": 2, "at": "400ms", "for": "400ms"}]})
    run = (*UNSHAPED_RUN, two_nodes.address, str(tmp_path), document, "hosts_per_machine=2")
    done = two_nodes.run_driver(*run, timeout_s=240)
    assert done.returncode == 0, done.stderr
    stored = load(Path(done.stdout.splitlines()[-1]))
    (row,) = stored.summary.to_dict("records")
    assert row["outcome"] == "survived"
    assert 0 < row["time_to_detect_s"] < row["time_to_recover_s"]
    assert stored.spans.groupby("rank")["iteration"].max().tolist() == [199, 199, 199]
    (trial,) = stored.trials
    (injected,) = trial.facts["faults"]["injected"]
    # Both have this machine's clock.
    assert injected["clock_error_ns"] == trial.facts["clocks"]["west"]["error_ns"]
    assert injected["applied_ns"] >= injected["due_ns"] - injected["clock_error_ns"]


@pytest.mark.soak
def test_of_a_driver_that_is_killed_amid_failures_nothing_is_left_on_any_machine(
    two_nodes: RayCluster,  # noqa: F811
    tmp_path: Path,
) -> None:
    document = {
        "name": "amid failures",
        "topology": TOPOLOGY,
        "compute": {"forward": "5ms", "backward": "10ms", "activation": "64KiB"},
        "training": {"microbatches": 4, "iterations": 1000, "warmup": 1},
        "fail": [{"host": "west-0", "at": "3s"}, {"gateway": "east", "at": "1000s"}],
        "engine": "rack",
        "dilation": 1,
    }
    run = (*UNSHAPED_RUN, two_nodes.address, str(tmp_path), json.dumps(document), "hosts_per_machine=2")
    with two_nodes.start_driver(*run, stdout=subprocess.PIPE) as driver:
        held: set[str] = set()

        def seen(machine: str) -> bool:
            marks = marks_of_ranks(two_nodes.machines[machine])
            held.update(marks)
            return bool(marks)

        until_within(240, lambda: seen("west") and seen("east"))
        # West's is killed; the others wait for it, and a failure is still to come.
        until_within(60, lambda: not seen("west"))
        driver.kill()
    until_within(LEFT_S, lambda: not any(marked_processes(identifier) for identifier in held))
    done = two_nodes.run_driver("-m", "wanbed", "clean", "--rack", two_nodes.address, "--json")
    assert [each["cleaned"] for each in json.loads(done.stdout)["machines"]] == [[], []]


@pytest.mark.soak
def test_a_trial_that_fails_is_marked_and_the_next_runs_on_machines_that_are_brought_up_anew(
    two_nodes: RayCluster,  # noqa: F811
    tmp_path: Path,
) -> None:
    document = {
        "name": "going on",
        "topology": TOPOLOGY,
        "compute": {"forward": "2ms", "backward": "4ms", "activation": "64KiB"},
        "training": {"microbatches": 4, "iterations": 40, "warmup": 1},
        "variants": [{"name": "first", "schedule": "1f1b"}, {"name": "second", "schedule": "gpipe"}],
        "engine": "rack",
        "dilation": 1,
    }
    run = (*UNSHAPED_RUN, two_nodes.address, str(tmp_path), json.dumps(document), "hosts_per_machine=2", "keep-going")
    with two_nodes.start_driver(*run, stdout=subprocess.PIPE) as driver:
        west = two_nodes.machines["west"]
        until_within(240, lambda: any(ranks_on(west)))
        for pid in ranks_on(west):
            os.kill(pid, signal.SIGKILL)
        output, _ = driver.communicate(timeout=240)
    assert driver.returncode == 0, output
    stored = load(Path(output.splitlines()[-1]))
    first, second = stored.summary.to_dict("records")
    assert (first["variant"], first["outcome"]) == ("first", "failed")
    assert second["variant"] == "second"
    assert second["iteration_time_s"] > 0
    assert stored.manifest["complete"]


def ranks_on(machine: NamespaceMachine) -> Iterator[int]:
    """Yield the processes of ranks on a machine."""
    for pid in processes_on(machine):
        with suppress(OSError):
            if "wanbed.workloads.rank" in command_of(pid):
                yield pid


def marks_of_ranks(machine: NamespaceMachine) -> list[str]:
    """The testbed of each rank that runs on a machine."""
    found = []
    for pid in ranks_on(machine):
        with suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
            found += [text.partition("=")[2] for text in variables if text.startswith(f"{MARKER}=")]
    return found
