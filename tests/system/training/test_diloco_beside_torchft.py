"""torchft's DiLoCo, as a user's program, and wanbed's beside it on the same emulated links."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.support.present import present
from tests.support.runner.diloco_beside_torchft import (
    CLOSED_FORM_BYTES,
    SYNC_EVERY,
    SYNCHRONISATIONS,
    synchronised,
)
from tests.support.runner.wanbed_command import BUSY_OR_NOT, wanbed
from wanbed.results.reading.run import Run, load_run
from wanbed.runner.experiments.shipped_experiments import shipped_experiment
from wanbed.testbed.network.goodput import tcp_goodput_bps

# That the losses are the same, tests/workloads/test_local_updates_beside_torchft.py shows.
pytestmark = [
    pytest.mark.measures,
    pytest.mark.soak,
    pytest.mark.skipif(find_spec("torchft") is None, reason="torchft is not installed; it has wheels for x86_64"),
]
VARIANTS = ("wanbed", "torchft")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The shipped experiment, without the variants that answer further questions."""
    folder = tmp_path_factory.mktemp("beside")
    shipped = present(shipped_experiment("diloco-beside-torchft"))
    document = yaml.safe_load(shipped.text_for(folder))
    document["variants"] = [each for each in document["variants"] if each["name"] in VARIANTS]
    (folder / "beside.yaml").write_text(yaml.safe_dump(document))
    assert shipped.program is not None
    (folder / shipped.program.name).write_text(shipped.program.read_text())
    wanbed(
        "run",
        "beside.yaml",
        status=BUSY_OR_NOT,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
    )
    (path,) = (folder / "runs").iterdir()
    return load_run(path)


def test_both_have_the_same_losses_in_every_replica(run: Run) -> None:
    ours, theirs = (np.array(synchronised(run, variant).losses) for variant in VARIANTS)
    assert ours.shape == (2, SYNC_EVERY * SYNCHRONISATIONS + 1)
    assert ours == pytest.approx(theirs, abs=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_replica_sends_the_closed_form_in_each_synchronisation(run: Run, variant: str) -> None:
    # Answers of TCP go the same way, and a segment that was lost goes twice.
    for sent_bytes in synchronised(run, variant).sent_bytes:
        assert CLOSED_FORM_BYTES <= sent_bytes <= 1.03 * CLOSED_FORM_BYTES


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_synchronisation_is_shorter_than_the_link_allows(run: Run, variant: str) -> None:
    least_s = CLOSED_FORM_BYTES * 8 / tcp_goodput_bps(60e6)
    durations_s = synchronised(run, variant).durations_s
    assert len(durations_s) == SYNCHRONISATIONS
    assert min(durations_s) > 0.8 * least_s
