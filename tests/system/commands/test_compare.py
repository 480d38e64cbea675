"""The gate on emulated runs: the same thing twice passes, 5 % slower does not, and a network that was not as asked is
refused.

The GPUs' work takes 360 of each iteration's 412 ms and the links are slow, so that a busy machine changes little.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.runner.wanbed_command import printed, stored

# The gate reads folders of runs; tests/runner/cli/results has it on folders with iteration times of the test's choice.
pytestmark = [pytest.mark.measures, pytest.mark.soak]

EXPERIMENT = """
name: gate
topology:
  datacenters: [{name: east, hosts: 1}, {name: west, hosts: 1}]
  wan: {latency: 20ms, rate: 20Mbit}
compute: {forward: 30ms, backward: 60ms, activation: 16KiB}
training: {microbatches: 3, iterations: 3}
variants: [{name: stock, schedule: gpipe}]
repeats: 5
dilation: 1
"""
SLOWER = ("--set", "compute.forward=31.7ms", "--set", "compute.backward=63.4ms")
BEYOND_ANY_MACHINE = {"topology.wan.rate": "200Gbit", "topology.wan.latency": "1ms", "repeats": 1}

RunOf = Callable[..., Path]


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> RunOf:
    """``run_of(*options, status=0)`` runs the experiment with those options and returns the run's folder."""
    folder = tmp_path_factory.mktemp("gate")

    def run(*options: str, status: int = 0) -> Path:
        return stored("run", EXPERIMENT, folder, *options, status=status)

    return run


@pytest.fixture(scope="module")
def baseline(run_of: RunOf) -> Path:
    return run_of()


@pytest.fixture(scope="module")
def slower(run_of: RunOf) -> Path:
    return run_of(*SLOWER)


def compared(*arguments: str | Path | int, status: int = 0) -> dict[str, Any]:
    return printed("compare", *arguments, status=status)


def test_5_percent_slower_is_caught_with_5_repeats(baseline: Path, slower: Path) -> None:
    refused = compared(baseline, slower, status=3)
    assert {each["field"].partition(".")[0] for each in refused["differences"]} == {"compute"}
    (point,) = compared(baseline, slower, "--allow", "compute", status=1)["sweep_points"]
    # Three microbatches at one stage and one at the other take 20 of an iteration's 412 ms longer.
    assert 1.03 < point["ratio"] < 1.07
    assert point["interval"][0] > 1.02


def test_the_same_thing_run_twice_passes_and_is_the_noise_of_this_machine(
    baseline: Path, slower: Path, tmp_path: Path
) -> None:
    document = compared(baseline, slower, "--allow", "compute", "--margin", "20%", "--noise", 5, "--runs", tmp_path)
    (point,) = document["sweep_points"]
    assert 0 <= point["noise_floor"] < 0.2
    assert (point["verdict"], point["margin"]) == ("same", 0.2)
    (again,) = tmp_path.iterdir()
    manifest = json.loads((again / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["noise_of"], manifest["complete"]) == (baseline.name, True)
    document = compared(baseline, again)
    assert document["differences"] == []
    (point,) = document["sweep_points"]
    assert point["verdict"] in {"same", "unclear"}
    assert (point["repeats"], point["iterations"]) == ({"a": 5, "b": 5}, {"a": 10, "b": 10})


def test_a_link_that_no_machine_holds_fails_calibration_and_is_refused(baseline: Path, run_of: RunOf) -> None:
    settings = [word for path, value in BEYOND_ANY_MACHINE.items() for word in ("--set", f"{path}={value}")]
    document = compared(baseline, run_of(*settings, status=1), "--allow", "topology", status=3)
    (refused,) = (each for each in document["differences"] if not each["allowed"])
    assert refused["field"] == "calibration"
    assert "outside tolerance" in refused["b"]
