"""Bytes that go around the emulated network are missed on its links' real counters, and mark the trial."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.runner.brought_up import BringUp, networks
from tests.support.until import until_within
from wanbed.results import load
from wanbed.results.reading.run import Run
from wanbed.runner.emulation.emulation import run_trials
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.runs.run_folder import begin_run
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.running_testbed import RunningTestbed
from wanbed.testbed.testbed import bring_up

EXPERIMENT: dict[str, Any] = {
    "name": "around",
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "5ms", "rate": "50Mbit"},
    },
    "compute": {"forward": "5ms", "backward": "10ms", "activation": "64KiB"},
    "training": {"microbatches": 4, "iterations": 20, "warmup": 1},
    "variants": [{"name": "1f1b", "schedule": "1f1b"}],
}


def inside(namespace: str, *argv: str) -> None:
    subprocess.run(["nsenter", f"--net={namespace}", "--", *argv], check=True)


def join_around(testbed: RunningTestbed) -> None:
    """Give the two hosts a cable of their own as soon as a trial begins, by which they reach each other then."""
    until_within(120, (testbed.folder / "trial").exists)
    one, other = (testbed.namespace(host) for host in ("east-0", "west-0"))
    inside(one, "ip", "link", "add", "around", "type", "veth", "peer", "name", "around", "netns", other)
    for namespace, host in ((one, "west-0"), (other, "east-0")):
        address = testbed.addresses.address(testbed.topology.host(host))
        inside(namespace, "ip", "link", "set", "around", "up")
        inside(namespace, "ip", "route", "add", f"{address}/32", "dev", "around")


@contextmanager
def with_a_cable(topology: Topology) -> Iterator[RunningTestbed]:
    with bring_up(topology) as testbed:
        joining = threading.Thread(target=join_around, args=(testbed,))
        joining.start()
        yield testbed
        joining.join()


@contextmanager
def without(topology: Topology) -> Iterator[RunningTestbed]:
    with bring_up(topology) as testbed:
        yield testbed


def run(up: BringUp, runs: Path) -> tuple[Run, str]:
    """Run the experiment, and return its run and what was logged."""
    said: list[str] = []
    parsed = parse_experiment(EXPERIMENT, "test", Path())
    store = begin_run(parsed, runs, {"dilation": 1.0, "capacity_bps": None})
    run_trials(parsed, store, network_of=networks(up), log=said.append)
    return load(store.path), "\n".join(said)


@pytest.mark.parametrize(("up", "around"), [pytest.param(without, False, marks=pytest.mark.soak), (with_a_cable, True)])
def test_a_trial_whose_bytes_went_around_is_marked_and_no_other(up: BringUp, around: bool, tmp_path: Path) -> None:
    stored, said = run(up, tmp_path)
    (trial,) = stored.trials
    carried = trial.facts["carried"]
    # Four activations there and four gradients back, twenty times.
    assert carried["sent_bytes"] == 2 * 4 * 20 * 64 * 2**10
    assert bool(carried["short"]) is around
    assert ("bytes went around the emulated network" in said) is around
    assert (carried["carried_bytes"] < carried["sent_bytes"]) is around
    # Its links were measured before and are as configured, where nobody else needs the cores.
    assert not (around and stored.summary.calibrated.any())
