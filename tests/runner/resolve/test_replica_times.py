"""GPUs whose compute times differ from those of their stage: who they are, and what is made of it."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.present import present
from tests.support.runner.small_experiment import sweep_point
from wanbed.ground.errors import InputError
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.cell_costs import cell_costs
from wanbed.runner.resolve.experiment import Experiment, SweepPoint
from wanbed.runner.resolve.replica_times import least_costs
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.stage_costs import stage_costs
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.workloads.compute.varied_durations import Distribution, Jitter
from wanbed.workloads.schedules.action import ActionKind

MS = 1_000_000

TOPOLOGY: dict[str, Any] = {
    "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
    "wan": {"latency": "20ms", "rate": "1Gbit"},
}


def experiment(compute: dict[str, Any], **sections: Any) -> Experiment:
    return parse_experiment(
        {
            "topology": TOPOLOGY,
            "compute": {"forward": "10ms", "optimizer": "1ms", "activation": "1MiB", "gradient": "1MB", **compute},
            "training": {"stages": 2, "pipelines": 2, "microbatches": 4},
            **sections,
        },
        "exp.yaml",
        Path(),
    )


def point(compute: dict[str, Any], **sections: Any) -> SweepPoint:
    return experiment(compute, **sections).points()[0]


def variant(*slower: dict[str, Any], **sections: Any) -> ResolvedVariant:
    return point({"slower": list(slower)}, **sections).variants[0]


def forwards_ms(resolved: ResolvedVariant) -> list[float]:
    places = resolved.placement.places
    return [resolved.costs(place.pipeline, place.stage).durations.forward_ns / MS for place in places]


@pytest.mark.parametrize(
    ("entry", "expected_ms"),
    [
        ({"datacenter": "west"}, [10, 20, 10, 20]),
        ({"host": "east-1"}, [10, 10, 20, 10]),
        ({"pipeline": 1}, [10, 10, 20, 20]),
        ({"stage": 1}, [10, 20, 10, 20]),
        ({"pipeline": 1, "stage": 1}, [10, 10, 10, 20]),
        ({"datacenter": "west", "pipeline": 0}, [10, 20, 10, 10]),
    ],
)
def test_an_entry_is_about_the_gpus_that_match_all_it_names(entry: dict[str, Any], expected_ms: list[float]) -> None:
    assert forwards_ms(variant({**entry, "factor": 2})) == expected_ms


def test_factors_of_several_entries_multiply_on_every_kind_of_time() -> None:
    resolved = variant({"datacenter": "west", "factor": 1.5}, {"pipeline": 1, "factor": 0.5})
    assert forwards_ms(resolved) == [10, 15, 5, 7.5]
    slow, fast = (resolved.costs(*place).durations for place in ((0, 1), (1, 0)))
    assert (slow.backward_ns, slow.backward_weight_ns, slow.optimizer_ns) == (30 * MS, 15 * MS, 1.5 * MS)
    assert (fast.backward_ns, fast.backward_input_ns, fast.optimizer_ns) == (10 * MS, 5 * MS, 0.5 * MS)
    assert slow.recompute_ns == 0


def test_a_factor_may_be_for_some_of_the_work_alone() -> None:
    usual = variant().work.replay(0).durations
    slow = variant(
        {"pipeline": 0, "factor": 2, "actions": ["forward", "recompute"]},
        {"pipeline": 0, "factor": 3, "actions": ["backward"]},
    )
    own = slow.costs(0, 0).durations
    assert (own.forward_ns, own.recompute_ns) == (2 * usual.forward_ns, 2 * usual.recompute_ns)
    assert own.optimizer_ns == usual.optimizer_ns
    for kind in (ActionKind.BACKWARD, ActionKind.BACKWARD_INPUT, ActionKind.BACKWARD_WEIGHT):
        assert own.of(kind) == 3 * usual.of(kind)
    assert slow.replicas is not None
    backward = dict.fromkeys(("backward", "backward_input", "backward_weight"), 3.0)
    assert slow.replicas.document(2)["factors"][0][0] == {"forward": 2.0, "recompute": 2.0, **backward}
    assert slow.replicas.document(2)["factors"][1] == [1.0, 1.0]


def test_sizes_are_those_of_the_stage() -> None:
    plain = point({}).variants[0]
    assert variant({"stage": 1, "factor": 3}).costs(1, 1).sizes == plain.costs(1, 1).sizes


def test_a_plan_is_made_for_the_slowest_replica_of_each_stage() -> None:
    atlas = [{"name": "atlas", "schedule": "atlas"}]
    resolved = variant({"host": "east-1", "factor": 1.2}, {"datacenter": "west", "factor": 0.5}, variants=atlas)
    costs = cell_costs(point({}, variants=atlas).topology, resolved)
    assert costs.forward_ns == resolved.work.forward_ns == (12 * MS, 5 * MS)
    assert resolved.document()["replicas"] == {"factors": [[1.0, 0.5], [1.2, 0.5]]}


def test_a_file_without_differences_is_what_it_was() -> None:
    plain, alike = experiment({}), experiment({"jitter": {"spread": "0%"}})
    assert plain.points()[0].variants[0].replicas is None
    assert not {"slower", "jitter", "from", "resample"} & set(plain.document()["compute"])
    assert "replicas" not in plain.points()[0].variants[0].document()
    assert alike.points()[0].variants[0].replicas is None


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"host": "esat-1"}, "compute.slower.0.host: no host 'esat-1', did you mean 'east-1'?"),
        ({"datacenter": "wset"}, "compute.slower.0.datacenter: no datacenter 'wset', did you mean 'west'?"),
        ({"datacenter": "mars"}, "compute.slower.0.datacenter: no datacenter 'mars', there are east and west"),
        ({"pipeline": 2}, "compute.slower.0: no stage is computed at pipeline 2: name GPUs that train, or leave"),
        ({"host": "east-1", "stage": 1}, "compute.slower.0: no stage is computed at host east-1, stage 1: name"),
        ({}, "compute.slower.0: name the GPUs that it is about: give datacenter, host, pipeline or stage"),
    ],
)
def test_an_entry_about_no_gpu_is_refused(entry: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=re.escape(text)):
        variant({**entry, "factor": 2})


@pytest.mark.parametrize("factor", [0, -1, "2", True, 1e4])
def test_a_factor_is_a_number_above_zero(factor: object) -> None:
    with pytest.raises(InputError, match=re.escape("compute.slower.0.factor: ")):
        variant({"stage": 0, "factor": factor})


def test_an_entry_may_be_about_the_gpus_of_one_variant_alone() -> None:
    variants = [
        {"name": "west", "schedule": "gpipe", "placement": ["west", "west"]},
        {"name": "east", "schedule": "gpipe", "placement": ["east", "east"]},
    ]
    sections = {"training": {"stages": 2, "microbatches": 4}, "variants": variants}
    west, east = point({"slower": [{"host": "west-1", "factor": 2}]}, **sections).variants
    assert (forwards_ms(west), forwards_ms(east)) == ([10, 20], [10, 10])


def test_jitter_has_the_seed_of_the_file_and_the_number_of_the_repeat() -> None:
    own = point({"jitter": {"distribution": "gamma", "spread": "5%"}}, seed=9).variants[0].in_repeat(3)
    variation = present(own.costs(1, 0).variation)
    assert (variation.seed, variation.repeat, variation.pipeline, variation.stage) == (9, 3, 1, 0)
    assert variation.jitter == Jitter(Distribution.GAMMA, 0.05)
    assert own.without_variation().costs(1, 0).variation is None


def test_a_spread_beyond_the_distribution_is_refused_with_a_remedy() -> None:
    text = "jitter.spread: 40% of a normal distribution makes times of zero or less: give at most 30%, or"
    with pytest.raises(InputError, match=re.escape(text)):
        point({"jitter": {"spread": "40%"}})


@pytest.mark.parametrize(
    ("compute", "engine", "repeats"),
    [
        ({}, "simulate", 1),
        ({"slower": [{"stage": 0, "factor": 2}]}, "simulate", 1),
        ({"jitter": {"spread": "0%"}}, "simulate", 1),
        ({"jitter": {"spread": "5%"}}, "simulate", 5),
        ({}, "emulate", 5),
    ],
)
def test_a_simulation_repeats_what_is_drawn(compute: dict[str, Any], engine: str, repeats: int) -> None:
    own = experiment(compute, engine=engine, repeats=5)
    assert (own.repeats, len(own.trials())) == (repeats, repeats)


def test_only_sweep_points_that_draw_are_repeated() -> None:
    own = experiment({}, engine="simulate", repeats=5, sweep={"compute.jitter.spread": ["0%", "5%"]})
    assert [each.repeats for each in own.points()] == [1, 5]
    assert own.repeats == 5


TORCH: dict[str, Any] = {"kind": "torch", "device": "cpu"}

DIFFERENCES: list[dict[str, Any]] = [{"slower": [{"stage": 0, "factor": 2}]}, {"jitter": {"spread": "5%"}}]


@pytest.mark.parametrize("compute", DIFFERENCES, ids=["slower", "jitter"])
def test_what_torch_computes_takes_as_long_as_it_does(compute: dict[str, Any]) -> None:
    document = {"topology": TOPOLOGY, "model": "gpt-tiny", "compute": {**TORCH, **compute}, "training": {"stages": 2}}
    with pytest.raises(InputError, match=rf"compute\.{next(iter(compute))}: torch takes as long as it computes: give"):
        parse_experiment(document, "exp.yaml", Path())
    simulated = sweep_point({**document, "engine": "simulate"})
    assert simulated.variants[0].replicas is not None


@pytest.mark.parametrize("compute", DIFFERENCES, ids=["slower", "jitter"])
def test_a_program_takes_as_long_as_it_does(compute: dict[str, Any]) -> None:
    program = {"name": "own", "program": {"command": ["python", "train.py"]}}
    document = {"topology": TOPOLOGY, "compute": compute, "variants": [program]}
    with pytest.raises(InputError, match=r"the program of variants\.0 takes as long as it computes: leave"):
        parse_experiment(document, "exp.yaml", Path())


@pytest.mark.parametrize("compute", [*DIFFERENCES, {"from": "runs/x"}], ids=["slower", "jitter", "from"])
def test_a_trace_has_its_own_times(compute: dict[str, Any]) -> None:
    document = {"topology": TOPOLOGY, "compute": {"trace": "traces", **compute}}
    name = next(iter(compute))
    with pytest.raises(InputError, match=rf"compute.{name}: the trace has its own times and sizes: leave {name} out"):
        parse_experiment(document, "exp.yaml", Path())


@pytest.mark.parametrize(("factors", "least_ms"), [((2, 3), 10), ((0.5, 3), 5), ((0.5, 0.5), 2.5)])
def test_the_least_costs_of_a_stage_are_those_of_a_gpu_that_every_quicker_factor_is_about(
    factors: tuple[float, ...], least_ms: float
) -> None:
    own = point({"slower": [{"stage": number, "factor": factor} for number, factor in enumerate(factors)]})
    written = WrittenVariant(own.spec, 0, own.topology, Path())
    (variant,) = own.variants
    of_file = stage_costs(own.spec, variant.placement.stages, variant.pipelines, Path())
    assert least_costs(written, of_file).forward_ns == (least_ms * MS,) * 2
