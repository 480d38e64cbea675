"""Ranks, hosts, gateways and the guest itself fail for real: trials end marked or begin again, and the run goes on."""

import math
import os
import signal
import subprocess
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.runner.called_wanbed import run_here
from tests.support.runner.small_experiment import sweep_point
from tests.support.runner.wanbed_command import WANBED
from tests.support.testbed.processes import command_line
from tests.support.until import until_within
from tests.system.training.forked_ranks import ENVIRONMENT, fork_ranks
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip
from wanbed.results.reading.run import Run
from wanbed.results.records.run_store import TRIAL_FACTS, TrialRecord, read_json
from wanbed.results.records.schema import ReplicaLossRow
from wanbed.results.records.trial_tables import LOSSES_TABLE
from wanbed.runner.emulation.running_trial import TrialSpec
from wanbed.runner.emulation.trial import run_trial
from wanbed.runner.resolve.connections import count_connections
from wanbed.testbed.claims.processes import marked_processes
from wanbed.testbed.claims.registry import claims
from wanbed.testbed.substrate.probe import probe_guest
from wanbed.testbed.testbed import Testbed, bring_up

TOPOLOGY: dict[str, Any] = {
    "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 1}],
    "wan": {"latency": "20ms", "rate": "50Mbit"},
}

IN_VIRTUAL_TIME = """
topology:
  datacenters: [{name: east, hosts: 2}, {name: west, hosts: 2}]
  wan: {latency: 20ms, rate: 1Gbit}
compute: {forward: 20ms, backward: 40ms, activation: 256KiB}
training: {microbatches: 4, iterations: 8}
clock: virtual
recovery: restart
sweep:
  fail:
    - [{rank: 3, at: 1500ms}]
    - [{host: east-1, at: 1500ms}]
    - [{gateway: west, at: 1500ms}]
    - [{host: east-1, at: 4055ms}]
"""

LONG = """
topology:
  datacenters: [{name: east, hosts: 1}, {name: west, hosts: 1}]
  wan: {latency: 5ms, rate: 50Mbit}
compute: {forward: 5ms, backward: 10ms, activation: 16KiB}
training: {microbatches: 4, iterations: 40}
dilation: 1
repeats: 2
"""


@dataclass(frozen=True)
class Failed:
    """The trials of a sweep over failures, a row of the summary and the recorded facts of each, and their run."""

    rows: list[dict[Hashable, Any]]
    facts: list[dict[str, Any]]
    run: Run


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Failed:
    kernel_or_skip()
    run = run_here(IN_VIRTUAL_TIME, tmp_path_factory.mktemp("failed"))
    facts = [read_json(path)["faults"] for path in sorted(run.path.glob(f"trials/*/*/*/{TRIAL_FACTS}"))]
    return Failed(run.summary.to_dict("records"), facts, run)


def test_a_network_in_which_something_failed_is_not_the_next_sweep_points(failed: Failed) -> None:
    calibration = failed.run.calibration
    assert calibration.calibrated_at_point.tolist() == calibration.sweep_point.tolist()


def test_training_begins_again_on_the_hosts_that_are_left(failed: Failed) -> None:
    rank, host, gateway, _ = failed.rows
    for row in (rank, host, gateway):
        assert row["outcome"] == "recovered"
        assert row["iterations_lost"] <= 1
    # A rank's kernel resets its connections; of what is gone TCP tells after 8 s of silence.
    assert rank["time_to_detect_s"] < 0.5
    assert 7.5 < host["time_to_detect_s"] < 11
    assert 7.5 < gateway["time_to_detect_s"] < 11
    assert [[name for name, _ in facts["placements"][-1]] for facts in failed.facts[:3]] == [
        ["east-0", "east-1", "west-0", "west-1"],
        ["east-0", "west-0", "west-1"],
        ["east-0", "east-1"],
    ]


def test_a_failure_after_the_last_iteration_was_computed_leaves_nothing_to_train(failed: Failed) -> None:
    """Its gradients are on the way: the ranks that wait for them fail, when every one has all iterations."""
    row = failed.rows[-1]
    assert (row["outcome"], row["iterations_lost"]) == ("recovered", 0)
    assert math.isnan(row["time_to_recover_s"])
    assert failed.facts[-1]["iterations_completed"] == 8


def trained(testbed: Testbed, document: Mapping[str, Any]) -> TrialRecord:
    """The record of the first trial of an experiment, on a network that is up."""
    point = sweep_point(document)
    (variant,) = point.variants
    connections = count_connections(point.topology, variant.pairs, variant.transport)
    return run_trial(testbed, TrialSpec(point.trials()[0], point, 1.0, connections))


def losses(testbed: Testbed, **changes: Any) -> tuple[list[float], dict[str, Any] | None]:
    """The losses of three stages that torch trains, and what failed meanwhile."""
    document = {
        "topology": TOPOLOGY,
        "model": {"hidden": 32, "context": 32, "layers": 6, "heads": 2, "vocabulary": 256},
        "compute": {"kind": "torch"},
        "training": {"microbatches": 2, "iterations": 4, "precision": "fp32"},
        "dilation": 1,
        **changes,
    }
    record = trained(testbed, document)
    return list(record.facts["losses"]), record.facts.get("faults")


@pytest.fixture(scope="module")
def bed(substrate: str) -> Iterator[Testbed]:
    point = sweep_point({"topology": TOPOLOGY})
    with bring_up(point.topology, substrate=substrate) as testbed:
        yield testbed


@pytest.fixture
def _forked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    fork_ranks(monkeypatch.setattr)


@pytest.mark.usefixtures("_forked")
def test_losses_go_on_as_if_nothing_had_happened(bed: Testbed) -> None:
    undisturbed, _ = losses(bed)
    found, faults = losses(bed, fail=[{"host": "east-1", "at": "60ms"}], recovery="restart")
    assert faults is not None
    assert faults["outcome"] == "recovered"
    assert len(faults["placements"][-1]) == 2
    assert found == pytest.approx(undisturbed, rel=1e-5)
    # The next trial has every host again.
    again, _ = losses(bed)
    assert again == undisturbed


def failing_replica(bed: Testbed, iterations: int) -> tuple[dict[str, Any], dict[int, list[int]]]:
    """What became of the only failure, and the iterations that each of three replicas has learnt in."""
    document = {
        "topology": TOPOLOGY,
        "model": {"layers": 1, "hidden": 32, "context": 32, "heads": 2, "vocabulary": 256},
        "compute": {"kind": "torch", "device": "cpu", "checkpointing": False},
        "training": {"pipelines": 3, "microbatches": 3, "precision": "fp32", "iterations": iterations},
        "dilation": 1,
        "variants": [
            {"name": "diloco", "schedule": "diloco", "options": {"sync_every": 4, "topology": "star", "quorum": 2}}
        ],
        "fail": [{"rank": 2, "at": "300ms", "for": "100ms"}],
    }
    record = trained(bed, document)
    assert record.facts["faults"]["outcome"] == "survived"
    (failure,) = record.facts["faults"]["disturbances"]
    learnt: dict[int, list[int]] = {0: [], 1: [], 2: []}
    rows = record.tables[LOSSES_TABLE]
    assert isinstance(rows, Sequence)
    for row in rows:
        assert isinstance(row, ReplicaLossRow)
        learnt[row.pipeline].append(row.iteration)
    assert learnt[0] == learnt[1] == list(range(iterations))
    missed = sorted(set(range(iterations)) - set(learnt[2]))
    assert missed == list(range(missed[0], missed[-1] + 1))
    return failure, learnt


@pytest.mark.usefixtures("_forked")
def test_a_replica_of_torch_that_fails_joins_again(bed: Testbed) -> None:
    # They wait fifty times for the WAN, so that there is time.
    failure, learnt = failing_replica(bed, 200)
    assert learnt[2][-1] == 199
    assert failure["time_to_recover_ns"] is not None


# Four ranks load torch; that one who is late is ended is shown in test_rank_processes.py.
@pytest.mark.soak
def test_a_replica_of_torch_that_comes_too_late_joins_nobody(bed: Testbed) -> None:
    """It loads torch first. By then 16 iterations are long over."""
    failure, learnt = failing_replica(bed, 16)
    assert learnt[2][-1] < 15
    assert failure["time_to_recover_ns"] is None


@pytest.mark.soak
def test_a_gateway_guest_that_is_killed_costs_its_trial_alone(tmp_path: Path) -> None:
    if not probe_guest().available:
        pytest.skip(probe_guest().reason)
    file = tmp_path / "experiment.yaml"
    file.write_text(LONG)
    command = [*WANBED, "run", str(file), "--substrate", "guest", "--keep-going", "--runs", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        identifiers: set[str] = set()

        def marked(text: str) -> list[int]:
            own = {claim.record.identifier for claim in claims() if claim.record.owner_pid == process.pid}
            identifiers.update(own)
            return [pid for each in own for pid in marked_processes(each) if text in command_line(pid)]

        until = partial(until_within, 180)
        until(lambda: bool(list(tmp_path.glob("*/calibration/*"))) and bool(marked("wanbed.workloads.rank")))
        for pid in marked("linux.uml"):
            # The first of a guest's processes takes the others with it.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _, said = process.communicate(timeout=300)
    assert process.returncode == 4, said
    first, second = (read_json(path) for path in sorted(tmp_path.glob(f"*/trials/*/*/*/{TRIAL_FACTS}")))
    assert first["faults"]["outcome"] == "failed"
    assert not first["faults"]["planned"]
    assert "faults" not in second
    assert not any(marked_processes(identifier) for identifier in identifiers)
