"""The layers of a model are divided over its stages evenly, as listed, or so that the slowest stage takes the least."""

from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.present import present
from tests.support.refused import refused
from tests.support.runner.small_experiment import sweep_point
from wanbed.runner.resolve.layer_cut import StageTime, balanced
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.simulator.variant_simulation import simulate_variant

LLAMA = {"layers": 32, "hidden": 4096, "context": 4096, "heads": 32, "vocabulary": 128_256}
SLOW_WEST = {"profile": "a100", "slower": [{"datacenter": "west", "factor": 2}]}


def document(layers: Any = "balanced", **changes: Any) -> dict[str, Any]:
    return {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
            "wan": {"latency": "1ms", "node_pair_rate": "5Gbit"},
        },
        "model": changes.pop("model", LLAMA),
        "compute": changes.pop("compute", {"profile": "a100"}),
        "training": {"stages": 4, "microbatches": 16, "layers": layers, **changes.pop("training", {})},
        "variants": [{"name": "v", "schedule": "1f1b", "transport": {"model": "ideal"}, **changes.pop("variant", {})}],
        "engine": "simulate",
        **changes,
    }


def resolved(*args: Any, **changes: Any) -> PipelineVariant:
    (variant,) = sweep_point(document(*args, **changes)).variants
    assert isinstance(variant, PipelineVariant)
    return variant


def slowest_ns(variant: PipelineVariant) -> int:
    """Return the time that the slowest stage computes for a microbatch."""
    work = variant.work
    return max(map(sum, zip(work.forward_ns, work.recompute_ns, work.backward_ns, strict=True)))


stage_times = st.builds(
    StageTime, st.floats(0, 50, width=16), st.floats(0.5, 8, width=16), st.integers(0, 9) | st.just(1_000)
)


@given(st.integers(1, 9), st.lists(stage_times, min_size=1, max_size=4))
def test_no_other_cut_has_a_faster_slowest_stage(layers: int, stages: list[StageTime]) -> None:
    cuts = [
        tuple(end - start for start, end in pairwise((0, *inner, layers)))
        for inner in combinations(range(1, layers), len(stages) - 1)
    ]
    fitting = [cut for cut in cuts if all(count <= each.most_layers for count, each in zip(cut, stages, strict=True))]
    found = balanced(layers, stages)
    if not fitting:
        assert found is None
        return

    def slowest(cut: tuple[int, ...]) -> float:
        return max(each.of(count) for count, each in zip(cut, stages, strict=True))

    assert found in fitting
    assert slowest(present(found)) == min(map(slowest, fitting))


def test_the_stage_with_the_head_gets_fewer_layers() -> None:
    layers = present(resolved().layers)
    assert sum(layers) == 32
    assert layers[-1] < min(layers[:-1])
    assert slowest_ns(resolved()) < slowest_ns(resolved("even"))


def test_slower_gpus_get_fewer_layers_and_training_is_faster() -> None:
    even, cut = (resolved(each, compute=SLOW_WEST) for each in ("even", "balanced"))
    layers = present(cut.layers)
    assert min(layers[:2]) > 2 * max(layers[2:]) - 2
    topology = sweep_point(document()).topology
    evenly_ns, balanced_ns = (simulate_variant(topology, each, 2).iteration_time_ns(1) for each in (even, cut))
    assert balanced_ns < 0.8 * evenly_ns


def test_no_stage_gets_more_layers_than_fit_into_a_gpu() -> None:
    wide, narrow = (
        present(resolved(compute=SLOW_WEST, training={"memory": memory}).layers) for memory in ("80GiB", "55GiB")
    )
    assert max(narrow) < max(wide)
    assert sum(narrow) == sum(wide) == 32


def test_a_list_gives_the_costs_of_its_stages() -> None:
    listed, even = resolved([12, 10, 6, 4]), resolved("even")
    assert listed.layers == (12, 10, 6, 4)
    assert even.layers is None
    first, second = listed.work.forward_ns[:2]
    assert first / second == pytest.approx(1.2, rel=1e-6)
    assert resolved([8, 8, 8, 8]).work == even.work


def test_gradients_are_those_of_the_cut() -> None:
    listed, even = (
        resolved(each, training={"pipelines": 2, "stages": 2}).work.gradient_bytes for each in ([20, 12], "even")
    )
    assert listed[0] > even[0]
    assert sum(listed) == sum(even)


def test_a_variant_divides_the_layers_in_its_own_way() -> None:
    assert resolved([8, 8, 8, 8], variant={"training": {"layers": "even"}}).layers is None
    assert resolved("even", variant={"training": {"layers": [9, 9, 8, 6]}}).layers == (9, 9, 8, 6)


def test_the_planner_cuts_each_candidate_by_its_own_gpus() -> None:
    planned = resolved(compute=SLOW_WEST, variant={"placement": "auto"})
    fast = [place.datacenter for place in planned.placement.pipelines[0]].index("east")
    assert present(planned.layers)[fast] == max(present(planned.layers))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (document([8, 8, 16]), "training.layers: a list of 3 for 4 stages: give one number for each"),
        (document([8, 8, 8, 9]), "training.layers: 33 layers in all, and the model has 32: give numbers that add up"),
        (
            document("even", variant={"training": {"layers": [8, 8, 16]}}),
            "variants.0.training.layers: a list of 3 for 4 stages",
        ),
        (
            document(compute={"forward": "1ms"}),
            "training.layers: balanced, and the file has the times of each stage itself: give compute.profile, or list",
        ),
        (document(model={**LLAMA, "layers": 3}), "training.stages: 4 stages of a model of 3 layers"),
        (document("uneven"), "training.layers"),
        (document([8, 8, 16, 0]), "training.layers"),
        (
            document(training={"virtual_stages": 2}, variant={"schedule": "interleaved-1f1b"}),
            "variants.0.training.virtual_stages: 2 parts a stage have the same number of layers each",
        ),
        (document(training={"memory": "20GiB"}), "training.memory: 4 stages have no room for 32 layers"),
    ],
)
def test_a_cut_that_cannot_be_is_refused_in_one_line(changed: dict[str, Any], message: str) -> None:
    assert message in refused(lambda: sweep_point(changed))
