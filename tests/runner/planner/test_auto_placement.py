"""``placement: auto`` in an experiment: the planner chooses the places when the variant is resolved."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.refused import refused
from tests.support.runner.planner_instances import ATLAS, document, planned_pricing
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.planner.planning import planned_placement
from wanbed.runner.resolve.experiment import Experiment

AUTO = {**ATLAS, "placement": "auto"}
SLOW = [{"between": ["a", "b"], "node_pair_rate": "100Mbit", "latency": "80ms"}]


@pytest.fixture(autouse=True)
def _prices_by_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    planned_placement.cache_clear()
    monkeypatch.setattr("wanbed.runner.planner.planning.simulated_pricing", planned_pricing)


def parsed(document: dict[str, Any]) -> Experiment:
    return parse_experiment(document, "exp.yaml", Path())


def test_stages_lie_where_the_planner_puts_them() -> None:
    (variant,) = parsed(document({"a": 3, "b": 2, "c": 2}, 7, links=SLOW, variants=[AUTO])).points()[0].variants
    assert [place.datacenter for place in variant.placement.pipelines[0]] in (list("aaaccbb"), list("bbccaaa"))


def test_pipelines_and_microbatches_stay_as_the_file_has_them() -> None:
    training = {"stages": 2, "pipelines": 3, "microbatches": 5}
    experiment = parsed(document({"a": 6, "b": 6}, 2, training=training, variants=[AUTO, {**ATLAS, "name": "even"}]))
    auto, even = experiment.points()[0].variants
    assert (auto.pipelines, auto.microbatches) == (even.pipelines, even.microbatches) == (3, 5)
    assert [{place.datacenter for place in variant.placement.places} for variant in (auto, even)] == [
        {"a"},
        {"a", "b"},
    ]


def test_each_sweep_point_has_its_own_placement_and_the_document_keeps_auto() -> None:
    sweep = {"topology.links.0.between": [["a", "b"], ["a", "c"]]}
    experiment = parsed(document({"a": 3, "b": 2, "c": 2}, 7, links=SLOW, variants=[AUTO], sweep=sweep))
    orders = [
        list(dict.fromkeys(place.datacenter for place in point.variants[0].placement.pipelines[0]))
        for point in experiment.points()
    ]
    assert [order[1] for order in orders] == ["c", "b"]
    assert experiment.document()["variants"][0]["placement"] == "auto"
    assert parsed(experiment.document()).config_hash == experiment.config_hash


@pytest.mark.parametrize(
    ("variant", "text"),
    [
        ({"schedule": "dp", "training": {"stages": 1}}, "variants.0.schedule: dp places whole replicas"),
        ({"schedule": "gpipe", "placement": "atuo"}, "variants.0.placement: 'atuo' is not run here, give a list with"),
        ({"schedule": "gpipe", "training": {"stages": 9}}, "training.stages: 9 stages need 9 GPUs, one each, and the"),
    ],
)
def test_what_cannot_be_placed_is_refused(variant: dict[str, Any], text: str) -> None:
    assert refused(
        lambda: parsed(document({"a": 3, "b": 2}, 4, variants=[{"name": "v", "placement": "auto", **variant}]))
    ).startswith(f"exp.yaml: {text}")
