from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.present import present
from tests.support.refused import refused
from wanbed.runner.experiment.compute_spec import ComputeSpec
from wanbed.runner.experiment.experiment_document import ExperimentDocument
from wanbed.runner.experiment.sweep import sweep_point_specs
from wanbed.runner.planner import families
from wanbed.runner.planner.families import (
    FamiliesAsked,
    Family,
    FamilyLayout,
    FamilyPrice,
    family_layouts,
    family_notes,
    merged_stages,
    planned_family,
    priced_family,
    same_worth,
)
from wanbed.runner.planner.planning import plan, planning_task
from wanbed.runner.resolve.written_variant import WrittenVariant


@pytest.mark.parametrize(("names", "found"), [(["diloco"], ("diloco",)), (["pipeline", " diloco", "diloco"], None)])
def test_families_are_named_and_priced_once(names: list[str], found: tuple[str, ...] | None) -> None:
    assert FamiliesAsked.named(names).families == (found or (Family.PIPELINE, Family.DILOCO))


@pytest.mark.parametrize(
    ("names", "sync_every", "swap", "text"),
    [
        (["diloco", "dilco"], None, None, "--families: 'dilco' is not known: give some of pipeline, hierarchical, dil"),
        (["hierarchical"], 5, None, "--sync-every: only DiLoCo and ATOM synchronise: give --families diloco or atom"),
        (["diloco"], 0, None, "--sync-every: 0 is below 1"),
        (["diloco"], None, "12GB/s", "--swap: only ATOM swaps layers: give --families atom too"),
        (["atom"], None, None, "--families atom: say how fast layers are loaded into a GPU, like --swap 12GB/s"),
        (["atom"], None, "12GB", "--swap: '12GB' is not bytes per second: write it like 12GB/s"),
    ],
)
def test_what_cannot_be_asked_is_refused(names: list[str], sync_every: int | None, swap: str | None, text: str) -> None:
    assert refused(lambda: FamiliesAsked.named(names, sync_every, swap)).startswith(text)


def test_tokens_of_replicas_that_synchronise_seldom_are_not_worth_the_same() -> None:
    prices = [FamilyPrice(family, "", 1, 1.0, 1.0, 1, 1) for family in Family]
    told = {note.split(":")[0]: "tokens a second are not worth the same" in note for note in family_notes(prices)}
    assert told == {"diloco": True, "atom": True, "hierarchical": False}
    assert [family for family in Family if not same_worth(family)] == [Family.DILOCO, Family.ATOM]


def test_a_family_that_does_not_fit_is_told_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    own = FamilyPrice(Family.PIPELINE, "", 1, 1.0, 1.0, 1, 1)
    monkeypatch.setattr(families, "planned_family", lambda task, plan: own)
    monkeypatch.setattr(families, "priced_family", lambda *_, **__: None)
    told: list[str] = []
    unused: Any = None
    assert FamiliesAsked((Family.PIPELINE, Family.DILOCO)).prices(unused, unused, unused, told.append) == (own,)
    assert told == ["diloco: it needs whole replicas in two datacenters or more, and none fits"]


GPUS = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 40), min_size=2, max_size=4)


def test_hierarchical_replicas_have_one_stage_and_as_many_in_each_datacenter_as_the_smallest_holds() -> None:
    assert family_layouts(Family.HIERARCHICAL, {"a": 4, "b": 6}, 3, 32) == (FamilyLayout(1, 4, 2, 4),)


def test_replicas_of_diloco_have_any_number_of_stages_that_divides_the_plan_s() -> None:
    layouts = family_layouts(Family.DILOCO, {"a": 4, "b": 6}, 6, 24)
    assert layouts == (FamilyLayout(1, 4, 2, 3), FamilyLayout(2, 2, 2, 6), FamilyLayout(3, 1, 2, 12))


@given(GPUS, st.integers(1, 24), st.integers(1, 500))
def test_layouts_fit_and_train_on_about_as_many_sequences(gpus: dict[str, int], stages: int, wanted: int) -> None:
    for layout in family_layouts(Family.DILOCO, gpus, stages, wanted):
        assert layout.stages * layout.replicas_per_datacenter <= min(gpus.values())
        assert layout.datacenters == len(gpus)
        sequences = layout.replicas * layout.microbatches
        assert abs(sequences - wanted) <= layout.replicas / 2 or layout.microbatches == 1


def test_a_single_datacenter_has_nothing_to_lay_out() -> None:
    assert family_layouts(Family.HIERARCHICAL, {"a": 8}, 2, 8) == ()
    with pytest.raises(ValueError, match="pipelines have candidates"):
        family_layouts(Family.PIPELINE, {"a": 8, "b": 8}, 2, 8)


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
    (point,) = sweep_point_specs(ExperimentDocument({**yaml.safe_load(FILE), **changes}, "small.yaml", Path()))
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
    often, seldom = (present(priced_family(Family.DILOCO, each, task, 16, every)) for every in (1, 10))
    assert seldom.counted_per_s > often.counted_per_s
    assert (seldom.sequences, seldom.tried) == (16, 2)
    assert seldom.iteration_time_s < often.iteration_time_s
    # Two hops of each stage's ring cross the WAN.
    replicas = int(seldom.layout.split()[0])
    crossing = 2 * 2 * (replicas - 1) / replicas * 2 * MODEL_BYTES
    assert seldom.wan_bytes * 10 == pytest.approx(crossing, rel=0.02)


def test_hierarchical_sends_each_gradient_s_share_over_the_wan_once_each_way() -> None:
    each = written()
    price = present(priced_family(Family.HIERARCHICAL, each, planning_task(each, pipelines=None), 16, 10))
    assert (price.sequences, price.tried) == (16, 2)
    # 2 (D-1)/D x G/R of each of 8 ranks, where G is the whole model's gradient and R is 4.
    assert price.wan_bytes == pytest.approx(8 * 2 * (2 - 1) / 2 * MODEL_BYTES / 4, rel=0.02)


def test_atom_computes_as_long_as_its_loads_let_it_and_sends_each_model_to_the_one_that_gathers() -> None:
    each = written(model=MODEL)
    task = planning_task(each, pipelines=None)
    slow, fast = (present(priced_family(Family.ATOM, each, task, 16, 10, swap=swap)) for swap in ("50MB/s", "12GB/s"))
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


COMPUTE = ComputeSpec.model_validate(
    {"forward": "5ms", "backward": ["1ms", "2ms", "3ms", "4ms"], "activation": ["1KB", "2KB", "3KB"], "gradient": "1MB"}
)


def test_costs_of_merged_stages_add_up() -> None:
    halves = merged_stages(COMPUTE, 4, 2)
    assert halves.forward == (10_000_000, 10_000_000)
    assert halves.backward == (3_000_000, 7_000_000)
    assert halves.gradient == (2_000_000, 2_000_000)
    assert halves.activation == (2000,)
    whole = merged_stages(COMPUTE, 4, 1)
    assert (whole.forward, whole.backward, whole.activation) == ((20_000_000,), (10_000_000,), ())


def test_what_is_not_written_stays_so() -> None:
    halves = merged_stages(COMPUTE, 4, 2)
    assert halves.backward_weight is None
    assert halves.optimizer == (0, 0)
    profiled = ComputeSpec.model_validate({"profile": "a100"})
    assert merged_stages(profiled, 4, 1) == profiled


def test_as_many_stages_change_nothing() -> None:
    assert merged_stages(COMPUTE, 4, 4) == COMPUTE


def test_stages_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^3 stages cannot merge 4 evenly$"):
        merged_stages(COMPUTE, 4, 3)
