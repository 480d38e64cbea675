"""The Chakra trace of every shipped program that needs only torch: its replay takes as long as what was recorded."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.present import present
from tests.support.runner.called_wanbed import run_here, simulate_here
from wanbed.results.chakra.export import write_chakra_trace
from wanbed.results.reading.selection import Selection
from wanbed.results.records.span_log import ITERATION
from wanbed.runner.experiments.shipped_experiments import shipped_experiment

pytestmark = [pytest.mark.measures, pytest.mark.soak]

TOLERANCE = 0.15
"""Gloo's rings are not wanbed's."""


@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_a_replay_takes_as_long_as_the_iteration_that_was_recorded(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = present(shipped_experiment(name))
    for each in shipped.beside:
        shutil.copy(each, tmp_path)
    monkeypatch.chdir(tmp_path)
    document: dict[str, Any] = yaml.safe_load(shipped.path.read_text(encoding="utf-8"))
    (first, *_) = document["variants"]
    first["program"] |= {"iterations": 5, "warmup": 2}
    document = {"topology": document["topology"], "variants": [first], "dilation": 1}
    run = run_here(yaml.safe_dump(document), tmp_path)
    counts = write_chakra_trace(run.path, tmp_path / "t", Selection())
    stated = run.spans[(run.spans["kind"] == ITERATION) & (run.spans["iteration"] == counts.iteration)]
    recorded_s = float((stated["end_ns"] - stated["start_ns"]).max()) / 1e9
    replay = {
        "topology": document["topology"],
        "compute": {"trace": str(tmp_path / "t")},
        "training": {"iterations": 4},
        "variants": [{"name": "replay", "placement": list(counts.placement)}],
    }
    (replayed_s,) = simulate_here(yaml.safe_dump(replay), tmp_path).summary["iteration_time_s"]
    assert replayed_s == pytest.approx(recorded_s, rel=TOLERANCE)
