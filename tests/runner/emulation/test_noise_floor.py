from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.results.runs import flat, made
from wanbed.ground.errors import InputError
from wanbed.results.comparison.comparison import check
from wanbed.results.reading.run import Run
from wanbed.runner.emulation.noise_floor import check_noise, noise_experiment, noise_floors
from wanbed.runner.planner.experiment_file import load_experiment
from wanbed.runner.runs.manifest import gather_manifest

EXPERIMENT = """
topology:
  datacenters: [{name: east, hosts: 1}, {name: west, hosts: 1}]
  wan: {latency: 10ms, rate: 100Mbit}
compute: {forward: 10ms, activation: 64KiB}
training: {microbatches: 2}
repeats: 5
variants: [{name: stock, schedule: gpipe}, {name: mine, schedule: 1f1b}, {name: third, schedule: varuna}]
"""


def recorded(tmp_path: Path, **changes: Any) -> Run:
    """A run whose manifest is as the runner writes it."""
    file = tmp_path / "exp.yaml"
    file.write_text(EXPERIMENT + "".join(f"{name}: {value}\n" for name, value in changes.items()), encoding="utf-8")
    manifest: Mapping[str, Any] = gather_manifest(load_experiment(file))
    return made(tmp_path / "runs", {("10ms", "stock"): flat(1.0)}, **{**manifest, "dilation": 3.0})


def test_the_experiment_is_run_again_as_often_as_asked_with_the_runs_dilation(tmp_path: Path) -> None:
    again = noise_experiment(recorded(tmp_path), {"stock"}, 7)
    assert (again.repeats, again.spec.dilation) == (7, 3.0)
    assert [variant.name for variant in again.spec.variants] == ["stock"]
    assert len(again.trials()) == 7


def test_variants_that_a_sweep_counts_all_stay(tmp_path: Path) -> None:
    sweep = '{"variants.1.transport.connections": [1, 2]}'
    again = noise_experiment(recorded(tmp_path, sweep=sweep), {"stock"}, 3)
    assert [variant.name for variant in again.spec.variants] == ["stock", "mine", "third"]
    assert len(again.points()) == 2


def test_a_run_without_recorded_experiment_cannot_be_repeated(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    unsaid = type(run)(**{**vars(run), "manifest": {**run.manifest, "experiment": None}})
    with pytest.raises(InputError, match="does not record the experiment"):
        noise_experiment(unsaid, {"stock"}, 3)


def test_each_pair_has_the_floor_of_its_own_sweep_point_and_variant(tmp_path: Path) -> None:
    times = {("10ms", "stock"): flat(1.0), ("40ms", "stock"): flat(1.0), ("40ms", "other"): flat(1.0)}
    noisy = {**times, ("40ms", "stock"): [[1.0], [1.2], [0.9], [1.1]]}
    del noisy["40ms", "other"]
    a, b, noise = made(tmp_path, times), made(tmp_path, times), made(tmp_path, noisy)
    held = check_noise(a, noise)
    assert held.refused == ()
    floors = noise_floors(held, check(a, b).pairs)
    assert floors.keys() == {(0, "stock"), (1, "stock")}
    assert floors[0, "stock"] == 0
    assert 0.05 < floors[1, "stock"] < 0.35
