"""A rack of three machines: User-Mode Linux guests, each with its own kernel, card, netem and Ray node.

The head of the cluster is on this machine, and so is the process that drives it.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.rack.guests.guest_cluster import GuestCluster, guest_cluster, nodes_of
from tests.support.rack.guests.power_off import start_run
from tests.support.workloads.reference_training import train_reference
from wanbed.results import load
from wanbed.results.reading.run import Run
from wanbed.testbed.substrate.probe import probe_guest
from wanbed.workloads.gpt.gpt_config import GptConfig

pytestmark = pytest.mark.measures

MEMORY_MIB = 1536
RUN_S = 300
DATACENTERS = ("east", "central", "west")
CONFIG = GptConfig(layers=3, hidden=64, context=32, heads=4, vocabulary=256)
LEARNING_RATE = 3e-4
TRAINING = {"stages": 3, "microbatches": 2, "iterations": 3, "precision": "fp32", "learning_rate": LEARNING_RATE}
TRAINED: dict[str, Any] = {
    "name": "trained",
    "topology": {
        "datacenters": [{"name": name, "hosts": 1} for name in DATACENTERS],
        "wan": {"latency": "40ms", "rate": "20Mbit"},
    },
    "model": {"layers": 3, "hidden": 64, "context": 32, "heads": 4, "vocabulary": 256},
    "compute": {"kind": "torch", "device": "cpu", "checkpointing": False},
    "training": TRAINING,
    "variants": [{"name": "1f1b", "schedule": "1f1b"}],
    "seed": 7,
}

NODES = nodes_of(DATACENTERS)


@pytest.fixture(scope="module", autouse=True)
def _offered() -> None:
    offer = probe_guest()
    if not offer.available:
        pytest.skip(f"no User-Mode Linux: {offer.reason}")


@pytest.fixture(scope="module")
def rack() -> Iterator[GuestCluster]:
    with guest_cluster(*NODES, memory_mib=MEMORY_MIB) as cluster:
        yield cluster


def written(folder: Path, document: dict[str, Any]) -> Path:
    file = folder / "experiment.yaml"
    file.write_text(json.dumps(document))
    return file


def ended(driver: "subprocess.Popen[str]") -> tuple[Run, str]:
    """Wait for the end of a run, and return it, and what was logged."""
    try:
        output, errors = driver.communicate(timeout=RUN_S)
    finally:
        driver.kill()
    print(errors)
    assert driver.returncode == 0, errors
    return load(Path(json.loads(output)["run"])), errors


def test_torch_trains_over_the_machines_as_in_one_process_and_links_are_as_configured(
    rack: GuestCluster, tmp_path: Path
) -> None:
    run, _ = ended(start_run(rack, written(tmp_path, TRAINED)))
    assert run.manifest["rack_hosts"] == {"0": {f"{name}0": [f"{name}-0"] for name in DATACENTERS}}
    boots = {facts["boot_id"] for facts in run.manifest["rack"]["machines"].values()}
    assert len(boots) == len(DATACENTERS)
    assert len(run.calibration) == 6
    assert run.calibration.within_tolerance.all()
    reference = train_reference(CONFIG, pipelines=1, microbatches=2, iterations=3, seed=7, learning_rate=LEARNING_RATE)
    (trial,) = run.trials
    assert trial.facts["losses"] == pytest.approx(reference.losses, rel=1e-5)
