import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.refused import refused
from tests.support.runner.emulated_run import EXPERIMENT, LATENCIES, Simulator, Times, constant, write_run
from wanbed.ground.errors import InputError
from wanbed.results import load
from wanbed.results.reading.run import Run
from wanbed.runner.validation.comparison import OUTSIDE, RECOUNTED, SATURATED, compare

ONE: Times = {(0, "gpipe"): [2.0]}


def wan(**conditions: str) -> dict[str, Any]:
    topology = EXPERIMENT["topology"]
    return {**topology, "wan": {**topology["wan"], **conditions}}


def run_of(tmp_path: Path, times_s: Times = ONE, **said: Any) -> Run:
    return load(write_run(tmp_path, times_s, **said))


def test_every_sweep_point_and_variant_with_a_finished_trial_is_compared(tmp_path: Path) -> None:
    run = run_of(tmp_path, {(0, "gpipe"): [2.0], (0, "1f1b"): [1.0], (1, "gpipe"): [4.0]})
    found = [(each.values, each.variant, each.emulated_s) for each in compare(run, constant(1.0))]
    near, far = ({"topology.wan.latency": latency} for latency in LATENCIES)
    assert found == [(near, "gpipe", 2.0), (near, "1f1b", 1.0), (far, "gpipe", 4.0)]


def test_the_emulated_time_is_the_median_over_repeats_with_their_range(tmp_path: Path) -> None:
    (found,) = compare(run_of(tmp_path, {(0, "gpipe"): [2.0, 2.5, 1.9]}), constant(1.0))
    assert (found.repeats, found.emulated_s, found.fastest_s, found.slowest_s) == (3, 2.0, 1.9, 2.5)


def test_each_sweep_point_is_simulated_with_its_own_values(tmp_path: Path) -> None:
    simulator = Simulator(lambda topology, *_: topology.wan[0].conditions.latency_ns / 1e9)
    near, far = compare(run_of(tmp_path, {(0, "gpipe"): [2.0], (1, "gpipe"): [4.0]}), simulator)
    assert (near.simulated_s, far.simulated_s) == (0.01, 0.04)


def test_the_variant_is_simulated_with_every_effect_of_tcp_and_the_timers_of_the_run(tmp_path: Path) -> None:
    simulator = Simulator(lambda _, variant: {"gpipe": 3.0, "1f1b": 2.0}[variant.name])
    gpipe, other = compare(run_of(tmp_path, {(0, "gpipe"): [2.0], (0, "1f1b"): [2.0]}), simulator)
    assert (gpipe.simulated_s, other.simulated_s) == (3.0, 2.0)
    assert simulator.asked == [(None, 1.0)] * 2


def test_error_is_simulated_over_emulated_minus_one(tmp_path: Path) -> None:
    for simulated_s, error in ((2.2, 0.1), (1.9, -0.05)):
        (found,) = compare(run_of(tmp_path / str(error)), constant(simulated_s))
        assert found.error == pytest.approx(error)


@pytest.mark.parametrize(
    ("said", "cautions"),
    [
        ({}, ()),
        ({"within_tolerance": False}, (OUTSIDE,)),
        ({"facts": {"machine_load": {"saturated": 0.5}}}, (SATURATED,)),
        ({"facts": {"connections": [["east-0", "west-0", 3]]}}, (RECOUNTED,)),
    ],
)
def test_unreliable_emulated_figures_have_cautions(
    tmp_path: Path, said: dict[str, Any], cautions: tuple[str, ...]
) -> None:
    (found,) = compare(run_of(tmp_path, **said), constant(1.0))
    assert found.cautions == cautions


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ({"engine": "simulate"}, "it was not emulated"),
        ({"experiment": None}, "holds no experiment"),
        ({"experiment": {**EXPERIMENT, "compute": {"kind": "torch"}, "model": "gpt-tiny"}}, "torch computes"),
        ({"experiment": {**EXPERIMENT, "topology": 5}}, "topology"),
        (
            {"experiment": {**EXPERIMENT, "compute": {"forward": "51ms", "activation": "1MiB"}}},
            "resolves sweep point 0 to something else",
        ),
        ({"sweep_points": []}, "resolves sweep point 0 to something else"),
        (
            {"experiment": {**EXPERIMENT, "topology": wan(loss="3%")}},
            r"the simulator does not model loss 3%, validated to 1% \(east-west\)",
        ),
        ({"experiment": {**EXPERIMENT, "topology": wan(jitter="9ms")}}, r"does not model jitter 9ms, validated to 5ms"),
    ],
)
def test_a_run_that_cannot_be_compared_with_is_refused_in_one_line(
    tmp_path: Path, manifest: dict[str, Any], words: str
) -> None:
    assert re.search(words, refused(lambda: compare(run_of(tmp_path, manifest=manifest), constant(1.0))))


def test_fields_of_later_versions_are_no_difference(tmp_path: Path) -> None:
    run = load(write_run(tmp_path, ONE))
    for entry in run.manifest["sweep_points"]:
        for variant in entry["variants"].values():
            del variant["pipelines_per_cell"]
    assert len(compare(run, constant(1.0))) == 1


def test_a_trial_that_the_experiment_does_not_have_is_refused(tmp_path: Path) -> None:
    path = write_run(tmp_path, ONE)
    file = path / "manifest.json"
    manifest = json.loads(file.read_text(encoding="utf-8"))
    manifest["experiment"]["variants"][0]["name"] = "another"
    for entry in manifest["sweep_points"]:
        entry["variants"] = {}
    file.write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(InputError, match=r"has no sweep point 0 with variant .* remove that trial's folder"):
        compare(load(path), constant(1.0))
