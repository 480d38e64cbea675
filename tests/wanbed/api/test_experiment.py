"""An experiment built in Python has the fields, the checks and the messages of a file."""

import enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import wanbed
from wanbed.api.experiment import ExperimentFields, checked_experiment
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.planner.experiment_file import load_experiment

FIELDS: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "10ms", "rate": "1Gbit"},
    },
    "compute": {"forward": "1ms", "activation": "64KiB"},
    "training": {"microbatches": 2},
}


class Mine(wanbed.FixedOrder):
    def order(self, stage: int) -> list[wanbed.Action]:
        return [wanbed.Action(wanbed.ActionKind.FORWARD, stage)]


def built(**fields: Any) -> wanbed.Experiment:
    return wanbed.Experiment(**{**FIELDS, **fields})


def written_to(folder: Path, **fields: Any) -> Path:
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump({**FIELDS, **fields}), encoding="utf-8")
    return path


def test_its_arguments_are_the_fields_of_a_file() -> None:
    assert set(ExperimentFields.__annotations__) == set(ExperimentSpec.model_fields)
    assert ExperimentFields.__required_keys__ == {"topology"}


def test_it_is_the_experiment_that_a_file_would_give(tmp_path: Path) -> None:
    sweep = {"sweep": {"topology.wan.latency": ["5ms", "10ms"]}}
    here = checked_experiment(built(**sweep)).resolved()
    assert here.config_hash == load_experiment(written_to(tmp_path, **sweep)).config_hash


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"trainig": {}}, "trainig: unknown field, did you mean 'training'?"),
        ({"topology": {"datacenters": []}}, "topology.datacenters: "),
        ({"training": {"microbatches": 0}}, "training.microbatches: "),
        ({"sweep": {"topology.wan.latncy": ["1ms"]}}, "sweep: topology.wan.latncy: no field 'latncy'"),
        ({"sweep": {"topology.wan.latency": ["1ms", "x"]}}, "sweep: at topology.wan.latency=x: topology.wan.latency: "),
        ({"topology": {**FIELDS["topology"], "wan": {"latency": 10}}}, "topology.wan.latency: 10 has no unit"),
    ],
)
def test_a_mistake_is_one_line_with_its_field(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(wanbed.InputError) as refusal:
        built(**fields)
    assert str(refusal.value).startswith(f"Experiment: {message}")
    path = written_to(tmp_path, **fields)
    with pytest.raises(wanbed.InputError) as of_file:
        wanbed.Experiment.from_file(path)
    assert str(of_file.value) == str(refusal.value).replace("Experiment", str(path), 1)


def test_values_of_numpy_and_other_sequences_are_taken_for_what_they_are() -> None:
    sweep = {
        "training.microbatches": np.arange(1, 4),
        "topology.wan.latency": ("1ms", "2ms"),
        "training.warmup": range(1),
    }
    experiment = built(sweep=sweep, training={"microbatches": np.int64(2), "iterations": 3})
    assert len(experiment.sweep_points) == 6
    assert experiment.sweep_points[-1] == {
        "training.microbatches": "3",
        "topology.wan.latency": "2ms",
        "training.warmup": "0",
    }


def test_text_of_an_enumeration_is_text(tmp_path: Path) -> None:
    schedule = enum.StrEnum("Schedules", {"GPIPE": "gpipe"}).GPIPE
    built(variants=[{"name": "v", "schedule": schedule}]).to_file(tmp_path / "e.yaml")
    assert yaml.safe_load((tmp_path / "e.yaml").read_text())["variants"] == [{"name": "v", "schedule": "gpipe"}]


def test_endless_nesting_is_refused() -> None:
    endless: dict[str, Any] = {}
    endless["wan"] = endless
    with pytest.raises(wanbed.InputError, match=r"^Experiment: topology\.wan\.wan: it is nested too deeply$"):
        built(topology=endless)


def test_other_values_make_another_experiment() -> None:
    one = built()
    other = one.with_values({"topology.wan.latency": "20ms", "name": "far"})
    assert (one.name, other.name) == ("experiment", "far")
    links = [checked_experiment(each).points[0].topology.wan[0].conditions.latency_ns for each in (one, other)]
    assert links == [10_000_000, 20_000_000]


def test_a_path_that_does_not_exist_is_named() -> None:
    with pytest.raises(wanbed.InputError, match=r"^Experiment: topology\.wan\.latncy: no field 'latncy' in topology"):
        built().with_values({"topology.wan.latncy": "20ms"})


def test_a_file_and_back(tmp_path: Path) -> None:
    built(name="first").to_file(tmp_path / "e.yaml")
    again = wanbed.Experiment.from_file(tmp_path / "e.yaml", {"seed": 7})
    assert (again.name, checked_experiment(again).spec.seed) == ("first", 7)
    assert repr(again) == "<Experiment 'first': 1 sweep point, 1 variant>"


def test_relative_paths_begin_at_the_directory(tmp_path: Path) -> None:
    (tmp_path / "network.yaml").write_text(yaml.safe_dump(FIELDS["topology"]), encoding="utf-8")
    assert built(topology="network.yaml", directory=tmp_path).sweep_points == [{}]
    with pytest.raises(wanbed.InputError, match=r"^Experiment: topology: network\.yaml: cannot be read"):
        built(topology="network.yaml")


def test_a_schedule_class_stands_for_its_path() -> None:
    spec = checked_experiment(built(variants=[{"name": "v", "schedule": Mine}])).spec
    assert spec.variants[0].schedule == f"{__name__}:Mine"


def test_a_schedule_class_that_cannot_be_imported_is_refused() -> None:
    class Inner(Mine):
        pass

    with pytest.raises(wanbed.InputError, match=r"variants\.0\.schedule: .*Inner cannot be imported: define it at the"):
        built(variants=[{"name": "v", "schedule": Inner}])
