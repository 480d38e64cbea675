from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from wanbed.ground.errors import InputError
from wanbed.runner.experiment.experiment_document import ExperimentDocument

TWO: dict[str, Any] = {
    "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
    "wan": {"latency": "10ms", "rate": "1Gbit"},
}


def read(path: Path, fields: dict[str, Any], overrides: Sequence[str] = ()) -> ExperimentDocument:
    path.write_text(yaml.safe_dump(fields), encoding="utf-8")
    return ExperimentDocument.read(path, overrides)


def test_an_experiment_is_called_like_its_file_unless_it_says_otherwise(tmp_path: Path) -> None:
    assert read(tmp_path / "demo.yaml", {}).fields["name"] == "demo"
    assert read(tmp_path / "demo.yaml", {"name": "mine"}).fields["name"] == "mine"
    assert read(tmp_path / f"{'x' * 80}.yaml", {}).fields["name"] == "x" * 80
    assert read(tmp_path / f"{'x' * 81}.yaml", {}).fields["name"] == "experiment"
    assert read(tmp_path / "a\x07.yaml", {}).fields["name"] == "experiment"


def test_messages_start_with_the_file_and_what_is_set_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    document = read(path, {"seed": 1}, ["seed=2", "repeats=3"])
    assert document.source == f"{path} --set seed=2 --set repeats=3"
    assert (document.fields["seed"], document.fields["repeats"]) == (2, 3)


def test_a_topology_in_a_file_of_its_own_is_read_beside_the_experiment(tmp_path: Path) -> None:
    for name, latency in (("near.yaml", "1ms"), ("far.yaml", "90ms")):
        topology = {**TWO, "wan": {"latency": latency, "rate": "1Gbit"}}
        (tmp_path / name).write_text(yaml.safe_dump(topology), encoding="utf-8")
    path = tmp_path / "demo.yaml"
    assert read(path, {"topology": "near.yaml"}).fields["topology"]["wan"]["latency"] == "1ms"
    changed = read(path, {"topology": "near.yaml"}, ["topology=far.yaml", "topology.wan.rate=2Gbit"]).fields
    assert changed["topology"]["wan"] == {"latency": "90ms", "rate": "2Gbit"}
    with pytest.raises(InputError, match=r"demo\.yaml: topology: .*nowhere\.yaml"):
        read(path, {"topology": "nowhere.yaml"})
    (tmp_path / "near.yaml").write_text("datacentres: []\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"near\.yaml: datacentres: unknown field"):
        read(path, {"topology": "near.yaml"})
