from pathlib import Path
from typing import Any

import pytest
import yaml

from wanbed.runner.experiment.experiment_document import ExperimentDocument
from wanbed.runner.experiment.sweep import sweep_point_specs
from wanbed.runner.planner.families.family_layout import Family
from wanbed.runner.planner.families.family_pricing import planned_family, priced_family
from wanbed.runner.planner.planning import plan
from wanbed.runner.planner.planning_task import planning_task
from wanbed.runner.resolve.written_variant import WrittenVariant

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
MODEL = {"layers": 4, "hidden": 128, "context": 64, "heads": 4, "vocabulary": 256}
MODEL_BYTES = 2 * 4 * 2**20
"""The gradient of both stages, in bf16. A pseudo-gradient is twice as large, in fp32."""


def written(**changes: Any) -> WrittenVariant:
    document = {**yaml.safe_load(FILE), **changes}
    (point,) = sweep_point_specs(ExperimentDocument(document, "small.yaml", Path()))
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
    # Two hops of each stage's ring cross the WAN.
    replicas = int(seldom.layout.split()[0])
    crossing = 2 * 2 * (replicas - 1) / replicas * 2 * MODEL_BYTES
    assert seldom.wan_bytes * 10 == pytest.approx(crossing, rel=0.02)


def test_hierarchical_sends_each_gradient_s_share_over_the_wan_once_each_way() -> None:
    each = written()
    price = priced_family(Family.HIERARCHICAL, each, planning_task(each, pipelines=None), 16, 10)
    assert price is not None
    assert price.sequences == 16
    assert price.tried == 2
    # 2 (D-1)/D x G/R of each of 8 ranks, where G is the whole model's gradient and R is 4.
    assert price.wan_bytes == pytest.approx(8 * 2 * (2 - 1) / 2 * MODEL_BYTES / 4, rel=0.02)


def test_atom_computes_as_long_as_its_loads_let_it_and_sends_each_model_to_the_one_that_gathers() -> None:
    each = written(model=MODEL)
    task = planning_task(each, pipelines=None)
    slow, fast = (priced_family(Family.ATOM, each, task, 16, 10, swap=swap) for swap in ("50MB/s", "12GB/s"))
    assert slow is not None
    assert fast is not None
    assert (fast.layout, fast.sequences, fast.tried) == ("8 x 1 stage, 4 in each datacenter", 16, 1)
    assert fast.iteration_time_s < slow.iteration_time_s
    assert fast.counted_per_s == pytest.approx(16 * MODEL["context"] / fast.iteration_time_s)
    # Two microbatches of both stages' 5 and 10 ms, and what of a tenth of the sum over the WAN is waited for: at most
    # all 64 MiB of it at 100 Mbit/s.
    assert 2 * 2 * 0.015 < fast.iteration_time_s < 2 * 2 * 0.015 + 0.1 * 8 * 8 * MODEL_BYTES / 100e6
    # Four replicas of the other datacenter send their pseudo-gradient, and get the sum back.
    assert fast.wan_bytes * 10 == pytest.approx(4 * 2 * 2 * MODEL_BYTES, rel=0.02)


def test_a_single_datacenter_has_no_price() -> None:
    each = written(topology={"datacenters": [{"name": "east", "hosts": 4}]})
    task = planning_task(each, pipelines=None)
    assert [priced_family(family, each, task, 16, 10) for family in (Family.DILOCO, Family.HIERARCHICAL)] == [None] * 2
