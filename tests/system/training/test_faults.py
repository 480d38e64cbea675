"""Ranks, hosts, gateways and the guest itself fail for real: trials end marked or begin again, and the run goes on."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from results.reading.run import load_run
from results.records.run_store import TRIAL_FACTS, read_json
from runner.emulation.trial import TrialSpec, run_trial
from runner.planner.experiment_file import parse_experiment
from runner.resolve.connection_count import count_connections
from testbed.claims.processes import marked_processes
from testbed.claims.registry import claims
from testbed.substrate.probe import probe_guest
from testbed.testbed import Testbed, bring_up
from tests.support.testbed.command_line import command_line
from tests.support.until import until_within
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip

WANBED = [sys.executable, "-m", "runner.cli.command_line"]
TOPOLOGY: dict[str, Any] = {
    "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 1}],
    "wan": {"latency": "5ms", "rate": "50Mbit"},
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
  fail: [[{rank: 3, at: 1500ms}], [{host: east-1, at: 1500ms}], [{gateway: west, at: 1500ms}]]
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


def test_training_begins_again_on_the_hosts_that_are_left(tmp_path: Path) -> None:
    kernel_or_skip()
    file = tmp_path / "experiment.yaml"
    file.write_text(IN_VIRTUAL_TIME)
    ended = subprocess.run(
        [*WANBED, "run", str(file), "--json", "--runs", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    rank, host, gateway = json.loads(ended.stdout)["summary"]
    for row in (rank, host, gateway):
        assert row["outcome"] == "recovered"
        assert row["iterations_lost"] <= 1
    # A rank's kernel resets its connections; of what is gone TCP tells after 8 s of silence.
    assert rank["time_to_detect_s"] < 0.5
    assert 7.5 < host["time_to_detect_s"] < 11
    assert 7.5 < gateway["time_to_detect_s"] < 11
    left = [
        read_json(path)["faults"]["placements"][-1] for path in sorted(tmp_path.glob(f"*/trials/*/*/*/{TRIAL_FACTS}"))
    ]
    assert [[name for name, _ in places] for places in left] == [
        ["east-0", "east-1", "west-0", "west-1"],
        ["east-0", "west-0", "west-1"],
        ["east-0", "east-1"],
    ]


def test_a_failure_after_the_last_iteration_was_computed_leaves_nothing_to_train(tmp_path: Path) -> None:
    """Its gradients are on the way: the ranks that wait for them fail, when every one has all iterations."""
    kernel_or_skip()
    file = tmp_path / "experiment.yaml"
    document = IN_VIRTUAL_TIME[: IN_VIRTUAL_TIME.index("sweep:")]
    file.write_text(f"{document}fail: [{{host: east-1, at: 4055ms}}]\n")
    ended = subprocess.run(
        [*WANBED, "run", str(file), "--json", "--runs", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    (row,) = json.loads(ended.stdout)["summary"]
    assert (row["outcome"], row["iterations_lost"], row["time_to_recover_s"]) == ("recovered", 0, None)
    (path,) = tmp_path.glob(f"*/trials/*/*/*/{TRIAL_FACTS}")
    assert read_json(path)["faults"]["iterations_completed"] == 8


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
    (point,) = parse_experiment(document, "exp.yaml", Path()).points()
    (variant,) = point.variants
    connections = count_connections(point.topology, variant.pairs, variant.transport, variant.clock)
    record = run_trial(testbed, TrialSpec(point.trials()[0], point, 1.0, connections))
    return list(record.facts["losses"]), record.facts.get("faults")


def test_losses_go_on_as_if_nothing_had_happened(substrate: str) -> None:
    (point,) = parse_experiment({"topology": TOPOLOGY}, "exp.yaml", Path()).points()
    with bring_up(point.topology, substrate=substrate) as testbed:
        undisturbed, _ = losses(testbed)
        found, faults = losses(testbed, fail=[{"host": "east-1", "at": "60ms"}], recovery="restart")
        assert faults is not None
        assert faults["outcome"] == "recovered"
        assert len(faults["placements"][-1]) == 2
        assert found == pytest.approx(undisturbed, rel=1e-5)
        # The next trial has every host again.
        again, _ = losses(testbed)
        assert again == undisturbed


TORCH_REPLICAS = """
topology:
  datacenters: [{name: east, hosts: 1}, {name: central, hosts: 1}, {name: west, hosts: 1}]
  wan: {latency: 5ms, rate: 100Mbit}
model: {layers: 1, hidden: 32, context: 32, heads: 2, vocabulary: 256}
compute: {kind: torch, device: cpu, checkpointing: false}
training: {pipelines: 3, microbatches: 3, precision: fp32}
dilation: 1
variants:
  - {name: diloco, schedule: diloco, options: {sync_every: 4, topology: star, quorum: 2}}
fail: [{rank: 2, at: 300ms, for: 100ms}]
sweep: {training.iterations: [40, 400]}
"""


def test_a_replica_of_torch_that_fails_joins_again_if_there_is_time(tmp_path: Path, substrate: str) -> None:
    """It loads torch first: by then 40 iterations are long over, and 400 are not."""
    file = tmp_path / "replicas.yaml"
    file.write_text(TORCH_REPLICAS)
    ended = subprocess.run(
        [*WANBED, "run", str(file), "--json", "--substrate", substrate, "--runs", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    # A link outside tolerance, which is status 1, keeps no replica from joining.
    assert ended.returncode in {0, 1}, ended.stderr
    too_late, joined = json.loads(ended.stdout)["summary"]
    assert (too_late["outcome"], joined["outcome"]) == ("survived", "survived")
    assert too_late["time_to_recover_s"] is None
    assert joined["time_to_recover_s"] > 0.1
    (run,) = tmp_path.glob("replicas-*")
    losses = load_run(run).losses
    learnt = {
        (iterations, replica): own["iteration"].tolist()
        for (iterations, replica), own in losses.groupby(["sweep_point", "pipeline"])
    }
    for point, iterations in enumerate((40, 400)):
        assert learnt[point, 0] == learnt[point, 1] == list(range(iterations))
    assert max(learnt[0, 2]) < 39
    missed = sorted(set(range(400)) - set(learnt[1, 2]))
    assert missed == list(range(missed[0], missed[-1] + 1))
    assert learnt[1, 2][-1] == 399


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
        until(lambda: bool(list(tmp_path.glob("*/calibration/*"))) and bool(marked("workloads.rank")))
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
