from pathlib import Path
from typing import Any

import pytest
import yaml

from ground.strict_model import InputError, parse_model
from runner.experiment.experiment_spec import ExperimentSpec
from runner.experiment.sweep_points import sweep_point_specs
from runner.planner.families.family_layout import Family
from runner.planner.families.family_pricing import families_named, planned_family, priced_family
from runner.planner.planning import plan
from runner.planner.planning_task import planning_task
from runner.resolve.written_variant import WrittenVariant

FILE = """
name: small
topology:
  datacenters: [{name: east, hosts: 4}, {name: west, hosts: 4}]
  wan: {latency: 20ms, rate: 1Gbit, node_pair_rate: 100Mbit}
compute: {forward: 5ms, backward: 10ms, activation: 256KiB, gradient: 4MiB}
training: {stages: 2, microbatches: 4, iterations: 3}
variants:
  - {name: atlas, schedule: atlas, transport: {model: ideal}}
"""
WAN_BYTES = 2 * (2 - 1) / 2 * 4 * 2**20


def written(**changes: Any) -> WrittenVariant:
    document = {**yaml.safe_load(FILE), **changes}
    spec = parse_model(ExperimentSpec, document, "small.yaml")
    (point,) = sweep_point_specs(spec, document, "small.yaml", Path())
    return WrittenVariant(point.spec, 0, point.topology, Path())


def test_the_planner_s_answer_is_the_price_of_pipelines() -> None:
    task = planning_task(written(), pipelines=None)
    found = plan(task)
    price = planned_family(task, found)
    assert (price.family, price.sequences) == (Family.PIPELINE, found.chosen.candidate.pipelines * 4)
    assert price.counted_per_s == pytest.approx(price.sequences / price.iteration_time_s)


def test_diloco_sends_in_a_period_what_data_parallelism_sends_in_an_iteration() -> None:
    each = written()
    task = planning_task(each, pipelines=None)
    often, seldom = (priced_family(Family.DILOCO, each, task, 16, every) for every in (1, 10))
    assert often is not None
    assert seldom is not None
    assert seldom.counted_per_s > often.counted_per_s
    assert seldom.sequences == 16
    assert seldom.tried == 2
    assert seldom.iteration_time_s < often.iteration_time_s
    # Two hops of each stage's ring cross the WAN. A bf16 gradient of 4 MiB is a pseudo-gradient of 8 MiB in fp32.
    replicas, _, stages, *_ = seldom.layout.split()
    crossing = 2 * 2 * (int(replicas) - 1) / int(replicas) * 8 * 2**20 * int(stages)
    assert seldom.wan_bytes * 10 == pytest.approx(crossing, rel=0.02)


def test_hierarchical_sends_each_gradient_s_share_over_the_wan_once_each_way() -> None:
    each = written()
    price = priced_family(Family.HIERARCHICAL, each, planning_task(each, pipelines=None), 16, 10)
    assert price is not None
    assert price.sequences == 16
    assert price.tried == 2
    # 2 (D-1)/D x G/R of each of 8 ranks, where G is the whole model's gradient and R is 4.
    assert price.wan_bytes == pytest.approx(8 * WAN_BYTES / 4, rel=0.02)


def test_a_single_datacenter_has_no_price() -> None:
    each = written(topology={"datacenters": [{"name": "east", "hosts": 4}]})
    task = planning_task(each, pipelines=None)
    assert [priced_family(family, each, task, 16, 10) for family in (Family.DILOCO, Family.HIERARCHICAL)] == [None] * 2


@pytest.mark.parametrize(("names", "found"), [("diloco", (Family.DILOCO,)), ("pipeline, diloco,diloco", None)])
def test_families_are_named_with_commas(names: str, found: tuple[Family, ...] | None) -> None:
    assert families_named(names) == (found or (Family.PIPELINE, Family.DILOCO))


def test_a_family_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(InputError, match=r"^--families: 'atom' is not known: give some of pipeline, hierarchical, dil"):
        families_named("diloco,atom")
