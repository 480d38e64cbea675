"""A rack of three machines: User-Mode Linux guests, each with its own kernel, card, netem and Ray node.

The head of the cluster is on this machine, and so is the process that drives it.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from results import load
from testbed.substrate.probe import probe_guest
from tests.support.rack.guest_cluster import GuestCluster, guest_cluster, nodes_of
from tests.support.workloads.reference_training import train_reference
from workloads.model.gpt_config import GptConfig

pytestmark = pytest.mark.measures

MEMORY_MIB = 1536
DATACENTERS = ("east", "central", "west")
CONFIG = GptConfig(layers=3, hidden=64, context=32, heads=4, vocabulary=256)
TRAINING = {"stages": 3, "microbatches": 2, "iterations": 3, "precision": "fp32", "learning_rate": 3e-4}
TRAINED: dict[str, Any] = {
    "name": "trained",
    "topology": {
        "datacenters": [{"name": name, "hosts": 1} for name in DATACENTERS],
        "wan": {"latency": "20ms", "rate": "40Mbit"},
    },
    "model": {"layers": 3, "hidden": 64, "context": 32, "heads": 4, "vocabulary": 256},
    "compute": {"kind": "torch", "device": "cpu", "checkpointing": False},
    "training": TRAINING,
    "variants": [{"name": "1f1b", "schedule": "1f1b"}],
    "dilation": 2,
    "seed": 7,
}


@pytest.fixture(scope="module", autouse=True)
def _offered() -> None:
    offer = probe_guest()
    if not offer.available:
        pytest.skip(f"no User-Mode Linux: {offer.reason}")


@pytest.fixture(scope="module")
def rack() -> Iterator[GuestCluster]:
    with guest_cluster(*nodes_of(DATACENTERS), memory_mib=MEMORY_MIB) as cluster:
        yield cluster


def wanbed_run(rack: GuestCluster, document: dict[str, Any], folder: Path) -> "subprocess.CompletedProcess[str]":
    file = folder / "experiment.yaml"
    file.write_text(json.dumps(document))
    runs = ("--runs", str(folder / "runs"))
    return rack.run_driver("-m", "wanbed", "run", str(file), "--rack", rack.address, *runs, "--json", timeout_s=300)


def test_torch_trains_over_the_machines_as_in_one_process_and_links_are_as_configured(
    rack: GuestCluster, tmp_path: Path
) -> None:
    done = wanbed_run(rack, TRAINED, tmp_path)
    print(done.stderr)
    assert done.returncode == 0, done.stderr
    run = load(Path(json.loads(done.stdout)["run"]))
    assert run.manifest["rack_hosts"] == {"0": {f"{name}0": [f"{name}-0"] for name in DATACENTERS}}
    boots = {facts["boot_id"] for facts in run.manifest["rack"]["machines"].values()}
    assert len(boots) == len(DATACENTERS)
    assert len(run.calibration) == 6
    assert run.calibration.within_tolerance.all()
    reference = train_reference(
        CONFIG, pipelines=1, microbatches=2, iterations=3, seed=7, learning_rate=TRAINING["learning_rate"]
    )
    (trial,) = run.trials
    assert trial.facts["losses"] == pytest.approx(reference.losses, rel=1e-5)
