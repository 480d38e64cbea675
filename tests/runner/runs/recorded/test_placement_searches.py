from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.runner.planner_instances import ATLAS, document
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.planner.planning import planned_placement
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.recorded.manifest import gather_manifest
from wanbed.runner.runs.recorded.placement_searches import cut_off_lines, search_facts


@pytest.fixture(autouse=True)
def _plans_afresh() -> Any:
    planned_placement.cache_clear()
    yield
    planned_placement.cache_clear()


def experiment() -> Experiment:
    content = document(
        {"a": 3, "b": 2, "c": 2}, 7, variants=[{**ATLAS, "placement": "auto"}, {**ATLAS, "name": "even"}]
    )
    return parse_experiment(content, "exp.yaml", Path())


def test_the_manifest_has_the_search_of_a_placement_that_was_chosen() -> None:
    own = experiment()
    (entry,) = gather_manifest(own)["sweep_points"]
    search = entry["placement_searches"]["atlas"]
    assert entry["placement_searches"].keys() == {"atlas"}
    assert search["datacenters"] == [place.datacenter for place in own.points()[0].variants[0].placement.pipelines[0]]
    assert search["simulations"] >= 1
    assert search["cut_off"] is None
    assert cut_off_lines(own.points()) == []


def test_a_search_that_was_cut_off_is_told_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wanbed.runner.planner.planning.MOST_INSTANTS", 0)
    own = experiment()
    reason = "at the limit of 0 simulated instants, after 1 simulation"
    assert search_facts(own.points()[0])["placement_searches"]["atlas"]["cut_off"] == reason
    (line,) = cut_off_lines(own.points())
    assert line.startswith(f"atlas: placement auto: the search was cut off {reason}, on any machine alike")


def test_how_a_placement_was_found_is_no_part_of_a_configuration() -> None:
    variant = experiment().points()[0].variants[0]
    assert variant.planned is not None
    assert replace(variant, planned=None).document() == variant.document()
