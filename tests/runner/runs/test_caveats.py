from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.runner.planner_instances import ATLAS, document
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.planner.planning import planned_placement
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs.caveats import cut_lines, cut_off_lines
from wanbed.runner.runs.manifest import gather_manifest
from wanbed.runner.runs.trial_facts import cut_facts


def experiment(**changes: Any) -> Experiment:
    return parse_experiment(
        {
            "topology": {
                "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
                "wan": {"latency": "40ms", "rate": "50Gbit"},
            },
            "compute": {"forward": "1ms", "activation": "1MiB"},
            "variants": [
                {"name": "cut", "schedule": "gpipe", "transport": {"connections": "auto", "window": "700KiB"}},
                {"name": "wide", "schedule": "gpipe", "transport": {"connections": "auto", "window": "64MiB"}},
                {"name": "given", "schedule": "gpipe", "transport": {"connections": 8, "window": "700KiB"}},
            ],
            **changes,
        },
        "exp.yaml",
        Path(),
    )


def test_a_cut_variant_is_reported_with_its_node_pair() -> None:
    (line,) = cut_lines(experiment().points())
    assert line.startswith("cut: connections: auto stops at 64 between east-0 and west-0: 734 would fill the node pair")
    assert "64 carry 9.59" in line


def test_of_a_sweep_the_worst_point_is_reported() -> None:
    (line,) = cut_lines(experiment(sweep={"topology.wan.latency": ["1ms", "20ms", "40ms"]}).points())
    assert "at topology.wan.latency=40ms (and 1 more such case): 734" in line


def test_a_trial_keeps_what_is_cut_and_nothing_else() -> None:
    (point,) = experiment().points()
    kept = [cut_facts(point.topology, variant) for variant in point.variants]
    assert kept == [{"connections_cut": [["east-0", "west-0", 734, 0.0959]]}, {}, {}]


@pytest.fixture(autouse=True)
def _plans_afresh() -> Any:
    planned_placement.cache_clear()
    yield
    planned_placement.cache_clear()


def planned() -> Experiment:
    content = document(
        {"a": 3, "b": 2, "c": 2}, 7, variants=[{**ATLAS, "placement": "auto"}, {**ATLAS, "name": "even"}]
    )
    return parse_experiment(content, "exp.yaml", Path())


def test_the_manifest_has_the_search_of_a_placement_that_was_chosen() -> None:
    own = planned()
    (entry,) = gather_manifest(own)["sweep_points"]
    search = entry["placement_searches"]["atlas"]
    assert entry["placement_searches"].keys() == {"atlas"}
    assert search["datacenters"] == [place.datacenter for place in own.points()[0].variants[0].placement.pipelines[0]]
    assert search["simulations"] >= 1
    assert search["cut_off"] is None
    assert cut_off_lines(own.points()) == []


def test_a_search_that_was_cut_off_is_told_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wanbed.runner.planner.planning.MOST_INSTANTS", 0)
    own = planned()
    reason = "at the limit of 0 simulated instants, after 1 simulation"
    assert gather_manifest(own)["sweep_points"][0]["placement_searches"]["atlas"]["cut_off"] == reason
    (line,) = cut_off_lines(own.points())
    assert line.startswith(f"atlas: placement auto: the search was cut off {reason}, on any machine alike")


def test_how_a_placement_was_found_is_no_part_of_a_configuration() -> None:
    variant = planned().points()[0].variants[0]
    assert variant.planned is not None
    assert replace(variant, planned=None).document() == variant.document()
