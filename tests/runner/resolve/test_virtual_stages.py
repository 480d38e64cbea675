"""Variants with virtual stages: their costs, their pairs, and what they are refused with."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.present import present
from tests.support.refused import refused
from wanbed.ground.errors import InputError
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.planner.planning import planning_task
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.workloads.profiles.catalogue import load_profile

TOPOLOGY = {
    "datacenters": [{"name": name, "hosts": 2} for name in ("east", "central", "west")],
    "wan": {"latency": "40ms", "node_pair_rate": "1Gbit"},
}
INTERLEAVED: dict[str, Any] = {"schedule": "interleaved-1f1b", "training": {"virtual_stages": 2}}
ZB_V: dict[str, Any] = {"schedule": "zb-v", "training": {"virtual_stages": 2}}


def experiment(*variants: dict[str, Any], **document: Any) -> Experiment:
    return parse_experiment(
        {
            "topology": TOPOLOGY,
            "compute": {"forward": "10ms", "activation": "1MiB", "gradient": "1MiB"},
            "training": {"stages": 3, "microbatches": 6},
            "variants": [{"name": f"v{position}", **variant} for position, variant in enumerate(variants)],
            **document,
        },
        "exp.yaml",
        Path(),
    )


def resolved(*variants: dict[str, Any], **document: Any) -> ResolvedVariant:
    (point,) = experiment(*variants, **document).points()
    return point.variants[-1]


def refusal(*variants: dict[str, Any], **document: Any) -> str:
    return refused(lambda: resolved(*variants, **document)).removeprefix("exp.yaml: ")


def test_a_chain_goes_round_or_back_over_the_stages() -> None:
    round_, back = resolved(INTERLEAVED), resolved(ZB_V)
    assert [place.stage for place in round_.chains[0]] == [0, 1, 2, 0, 1, 2]
    assert [place.stage for place in back.chains[0]] == [0, 1, 2, 2, 1, 0]


def test_the_last_stage_is_connected_to_the_first_where_the_chain_goes_round() -> None:
    assert [(one.stage, other.stage) for one, other in resolved(INTERLEAVED).pairs] == [(0, 1), (0, 2), (1, 2)]
    assert [(one.stage, other.stage) for one, other in resolved(ZB_V).pairs] == [(0, 1), (1, 2)]


def test_parts_share_their_stages_times_to_the_nanosecond() -> None:
    work = resolved(
        {"schedule": "interleaved-1f1b", "training": {"virtual_stages": 3}},
        compute={"forward": ["10ns", "11ns", "12ns"], "activation": "1MiB"},
    ).work
    assert present(work.virtual).forward_ns == (3, 3, 4, 3, 4, 4, 4, 4, 4)
    assert work.forward_ns == (10, 11, 12)
    assert work.activation_bytes == present(work.virtual).activation_bytes == (2**20,) * 8


def test_a_profile_cuts_the_model_into_the_virtual_stages() -> None:
    variant = resolved(ZB_V, compute={"profile": "a100"}, model="gpt-a", training={"stages": 3, "pipelines": 2})
    (point,) = experiment(ZB_V, compute={"profile": "a100"}, model="gpt-a").points()
    config = present(present(point.spec.model).config)
    times = load_profile("a100", relative_to=Path()).stage_times(config, 6)
    assert present(variant.work.virtual).forward_ns == tuple(each.forward_ns for each in times)
    # The first stage has the embeddings and, as the last virtual stage, the head.
    assert variant.work.forward_ns[0] == times[0].forward_ns + times[5].forward_ns
    sizes = [config.gradient_bytes(part, 6, "bf16") for part in range(6)]
    assert variant.work.gradient_bytes == (sizes[0] + sizes[5], sizes[1] + sizes[4], sizes[2] + sizes[3])


def test_the_field_changes_nothing_that_is_kept_where_it_has_its_default() -> None:
    plain = experiment({"schedule": "1f1b"})
    written = experiment({"schedule": "1f1b"}, training={"stages": 3, "microbatches": 6, "virtual_stages": 1})
    assert plain.document() == written.document()
    assert "virtual_stages" not in str(plain.document())
    assert "virtual" not in str([point.resolved() for point in plain.points()])
    assert experiment(ZB_V).document()["variants"][0]["training"]["virtual_stages"] == 2


def test_schedules_that_have_none_refuse_virtual_stages() -> None:
    remedy = "has none: give 1, or schedule interleaved-1f1b or zb-v"
    for name in ("gpipe", "1f1b", "varuna", "zb-h1", "atlas"):
        text = refusal({"schedule": name}, training={"stages": 3, "microbatches": 6, "virtual_stages": 2})
        assert text == f"variants.0.training.virtual_stages: 2, and {name} {remedy}"
    torch: dict[str, Any] = {"compute": {"kind": "torch", "checkpointing": False}, "model": "gpt-tiny"}
    text = refusal({"schedule": "torch-1f1b", "training": {"virtual_stages": 2}}, **torch)
    assert text == f"variants.0.training.virtual_stages: 2, and torch-1f1b {remedy}"


@pytest.mark.parametrize(
    ("variant", "document", "expected"),
    [
        (
            {"schedule": "interleaved-1f1b"},
            {},
            "variants.0.schedule: training.virtual_stages: interleaved-1f1b interleaves 2 virtual stages at least",
        ),
        ({"schedule": "zb-v"}, {}, "variants.0.schedule: training.virtual_stages: zb-v has 2 of them, not 1: give 2"),
        (
            {**INTERLEAVED, "training": {"virtual_stages": 2, "microbatches": 8}},
            {},
            "variants.0.schedule: training.microbatches: interleaved-1f1b runs them in groups of 3",
        ),
        (
            {**ZB_V, "training": {"virtual_stages": 2, "memory_bound": 2}},
            {},
            "variants.0.schedule: training.memory_bound: stage 0 holds up to 3 microbatches",
        ),
        (
            {**ZB_V, "transport": {"sharing": "temporal"}},
            {},
            "variants.0.transport.sharing: what virtual stages send goes over",
        ),
        (
            ZB_V,
            {"compute": {"forward": "10ms", "activation": "1MiB", "jitter": {"spread": "5%"}}},
            "variants.0.training.virtual_stages: the parts of a stage whose compute times differ",
        ),
        ({**ZB_V, "placement": "auto"}, {}, "variants.0.placement: the planner does not know virtual stages"),
        (
            ZB_V,
            {"prefill": {"trace": "poisson", "rate": "4/s"}},
            "variants.0.prefill: the bubbles between virtual stages are not planned: give prefill: none",
        ),
        (
            ZB_V,
            {"compute": {"profile": "a100"}, "model": "gpt-tiny"},
            "training.virtual_stages: 3 stages of 2 cut the model's 4 layers into 6 parts: give fewer of either",
        ),
        (
            ZB_V,
            {"compute": {"forward": "1ms", "activation": ["1MiB", "1MiB"]}},
            "compute.activation: a list of 2 for 5 boundaries between stages",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    variant: dict[str, Any], document: dict[str, Any], expected: str
) -> None:
    assert refusal(variant, **document).startswith(expected)


def test_there_is_nothing_to_plan_with_virtual_stages() -> None:
    (point,) = experiment(ZB_V).points()
    with pytest.raises(InputError, match=r"variants\.0\.training\.virtual_stages: 2: the planner does not know"):
        planning_task(WrittenVariant(point.spec, 0, point.topology, Path()), pipelines=None)


def test_a_stage_computes_its_own_parts_in_order_of_its_chunks_and_in_dilated_time() -> None:
    variant = resolved(
        {"schedule": "interleaved-1f1b", "training": {"virtual_stages": 2}},
        compute={"forward": ["10ns", "20ns", "40ns"], "activation": "1MiB"},
    )
    forwards = [[costs.durations.forward_ns for costs in variant.chunk_costs(stage)] for stage in range(3)]
    assert forwards == [[5, 5], [10, 10], [20, 20]]
    assert [costs.durations.forward_ns for costs in variant.chunk_costs(1, 3.0)] == [30, 30]
    assert resolved({"schedule": "1f1b"}).chunk_costs(0) == ()
    profiled = resolved(ZB_V, compute={"profile": "a100"}, model="gpt-a")
    whole = present(profiled.work.virtual).forward_ns
    for stage, (first, second) in enumerate(((0, 5), (1, 4), (2, 3))):
        own = [costs.durations.forward_ns for costs in profiled.chunk_costs(stage)]
        assert own == [whole[first], whole[second]]


def test_a_model_may_have_exactly_a_layer_for_each_part() -> None:
    model = {"layers": 6, "hidden": 128, "context": 128, "heads": 4, "vocabulary": 512}
    assert resolved(ZB_V, compute={"profile": "a100"}, model=model).work.virtual is not None
    assert "cut the model's 5 layers" in refusal(ZB_V, compute={"profile": "a100"}, model={**model, "layers": 5})
    summed: dict[str, Any] = {"compute": {"forward": "1ms", "activation": "1B"}, "model": {**model, "layers": 5}}
    assert "cut the model's 5 layers" in refusal(ZB_V, **summed, training={"stages": 3, "pipelines": 2})
    assert resolved(ZB_V, **summed).work.gradient_bytes == (0, 0, 0)
