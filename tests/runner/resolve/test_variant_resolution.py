"""Resolved variants: training dimensions, DP-cells, plans, and the ranks that connect."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.runner.two_jobs import two_jobs
from wanbed.ground.errors import InputError
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.device_memory import most_in_flight
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.resolved_variant import ResolvedVariant

TOPOLOGY = {
    "datacenters": [{"name": name, "hosts": 4} for name in ("east", "central", "west")],
    "wan": {"latency": "40ms", "node_pair_rate": "1Gbit"},
}

TEMPORAL = {"sharing": "temporal", "pipelines_per_cell": 2}

TORCH = {"kind": "torch", "checkpointing": False}

TINY: dict[str, Any] = {"compute": TORCH, "model": "gpt-tiny", "training": {"stages": 2, "pipelines": 2}}


def resolved(*variants: dict[str, Any], **document: Any) -> tuple[ResolvedVariant, ...]:
    experiment = parse_experiment(
        {
            "topology": TOPOLOGY,
            "compute": {"forward": "10ms", "activation": "1MiB", "gradient": "1MiB"},
            "training": {"stages": 6, "pipelines": 2, "microbatches": 4},
            "variants": [{"name": f"v{position}", **variant} for position, variant in enumerate(variants)],
            **document,
        },
        "exp.yaml",
        Path(),
    )
    (point,) = experiment.points()
    return point.variants


def refusal(*variants: dict[str, Any], **document: Any) -> str:
    with pytest.raises(InputError) as caught:
        resolved(*variants, **document)
    text = str(caught.value)
    assert text.isprintable()
    return text


def talking(variant: ResolvedVariant) -> set[tuple[int, int]]:
    rank = variant.placement.rank
    return {(rank(one), rank(other)) for one, other in variant.pairs}


def test_neighbour_stages_and_ring_neighbours_connect() -> None:
    (variant,) = resolved({"schedule": "gpipe"})
    stages = {(rank, rank + 1) for rank in (*range(5), *range(6, 11))}
    assert talking(variant) == stages | {(rank, rank + 6) for rank in range(6)}
    (alone,) = resolved({"schedule": "gpipe"}, training={"stages": 6})
    assert talking(alone) == {(rank, rank + 1) for rank in range(5)}


def test_hierarchical_replicas_connect_inside_their_datacenter_and_with_their_counterparts() -> None:
    (variant,) = resolved(
        {"schedule": "dp", "transport": {"all_reduce": "hierarchical"}}, training={"stages": 1, "pipelines": 6}
    )
    assert talking(variant) == {(0, 1), (2, 3), (4, 5)} | {(0, 2), (2, 4), (0, 4)} | {(1, 3), (3, 5), (1, 5)}


def test_in_a_butterfly_all_replicas_of_a_stage_connect() -> None:
    (variant,) = resolved(
        {"schedule": "dp", "transport": {"all_reduce": "butterfly"}}, training={"stages": 1, "pipelines": 4}
    )
    assert talking(variant) == {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}
    sizes = {(each.what, each.size_bytes) for each in variant.transfers()}
    assert sizes == {("a replica's part of the gradients", -(-variant.work.gradient_bytes[0] // 4))}


def test_cell_mates_connect_at_boundaries_that_cross_the_wan() -> None:
    (variant,) = resolved({"schedule": "gpipe", "transport": TEMPORAL})
    # Boundaries 1 and 3 cross the WAN: the replicas of the stages 1 to 4 relay for each other.
    assert [variant.cell_mates_connect(stage) for stage in range(6)] == [False, True, True, True, True, False]
    assert [variant.shares(boundary) for boundary in range(5)] == [False, True, False, True, False]


def test_pairs_come_once_with_the_lower_rank_first() -> None:
    (variant,) = resolved({"schedule": "gpipe", "transport": TEMPORAL})
    pairs = [(variant.placement.rank(one), variant.placement.rank(other)) for one, other in variant.pairs]
    assert pairs == sorted(set(pairs))
    assert all(one < other for one, other in pairs)


def test_dp_cells_are_consecutive_pipelines() -> None:
    (variant,) = resolved(
        {"schedule": "gpipe", "transport": TEMPORAL}, training={"stages": 3, "pipelines": 4, "microbatches": 4}
    )
    assert [list(variant.cell(pipeline)) for pipeline in range(4)] == [[0, 1], [0, 1], [2, 3], [2, 3]]


def test_auto_pipelines_per_cell_follow_from_transfer_and_forward_times() -> None:
    auto = {"schedule": "varuna", "transport": {"sharing": "temporal", "connections": "auto"}}
    training = {"stages": 3, "pipelines": 4, "microbatches": 4}
    # 1 MiB at 1 Gbit/s lasts 8.8 ms.
    for forward, expected in (("10ms", 1), ("5ms", 2), ("1ms", 4)):
        compute = {"forward": forward, "activation": "1MiB", "gradient": "1MiB"}
        assert resolved(auto, compute=compute, training=training)[0].pipelines_per_cell == expected


def test_a_planned_schedule_has_one_plan_for_a_dp_cell() -> None:
    (variant,) = resolved({"schedule": "atlas", "transport": TEMPORAL})
    assert variant.plan is not None
    assert len(variant.plan.orders) == 2
    assert variant.schedule_options(0).keys() == {"orders"}
    assert [order is None for order in variant.schedule_options(1, 4)["orders"]] == [True] * 4 + [False, True]
    assert resolved({"schedule": "varuna", "options": {}})[0].plan is None


def test_zb_2p_holds_twice_the_stages_unless_a_bound_is_written() -> None:
    training = {"stages": 3, "pipelines": 2, "microbatches": 12}
    alone, bounded = resolved(
        {"schedule": "zb-2p"}, {"schedule": "zb-2p", "training": {"memory_bound": 4}}, training=training
    )
    for variant, most in ((alone, 6), (bounded, 4)):
        assert variant.shape.memory_bound == most
        assert variant.plan is not None
        for pipeline in range(2):
            assert max(most_in_flight(variant, pipeline, stage) for stage in range(3)) <= most


def test_a_variant_overrides_training() -> None:
    whole, cut = resolved(
        {"schedule": "dp", "training": {"stages": 1, "pipelines": 8, "microbatches": 1}},
        {"schedule": "gpipe", "training": {"stages": 3, "memory_bound": 9}},
    )
    assert (whole.placement.stages, whole.pipelines, whole.microbatches) == (1, 8, 1)
    assert (cut.placement.stages, cut.pipelines, cut.shape.memory_bound) == (3, 2, 9)


def test_whole_replicas_are_spread_over_the_datacenters() -> None:
    (variant,) = resolved({"schedule": "dp"}, training={"stages": 1, "pipelines": 6})
    assert [place.datacenter for place in variant.placement.places] == ["east"] * 2 + ["central"] * 2 + ["west"] * 2
    assert talking(variant) == {(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)}


def test_stages_are_as_many_as_the_pipelines_leave_gpus_for() -> None:
    assert resolved({"schedule": "gpipe"}, training={"pipelines": 3})[0].placement.stages == 3
    assert resolved({"schedule": "gpipe"}, training={})[0].placement.stages == 12


@pytest.mark.parametrize(
    ("variants", "document", "text"),
    [
        (
            [{"schedule": "gpipe"}, {"schedule": "gpipe", "training": {"microbatches": 8}}],
            {},
            "variants.1.training: 2 pipelines of 8 microbatches train on 16 sequences an iteration, 'v0' on 8: to be",
        ),
        ([{"schedule": "gpip"}], {}, "variants.0.schedule: no schedule 'gpip', did you mean 'gpipe'?"),
        ([{"schedule": "dilco"}], {}, "variants.0.schedule: no schedule 'dilco', did you mean 'diloco'?"),
        (
            [{"schedule": "torch-gpip"}],
            {},
            "variants.0.schedule: no schedule 'torch-gpip', did you mean 'torch-gpipe'?",
        ),
        (
            [{"schedule": "gpipe", "options": {"depth": 3}}],
            {},
            "variants.0.schedule: wanbed.workloads.schedules.gpipe:GPipe: ",
        ),
        ([{"schedule": "atlas", "options": {"depth": 3}}], {}, "variants.0.schedule: "),
        (
            [{"schedule": "gpipe", "training": {"memory_bound": 2}}],
            {},
            "variants.0.schedule: memory_bound: GPipe holds all 4 microbatches at stage 0, which may hold 2",
        ),
        (
            [{"schedule": "gpipe", "transport": {**TEMPORAL, "pipelines_per_cell": 3}}],
            {},
            "variants.0.transport.pipelines_per_cell: DP-cells of 3 do not divide 2 pipelines: give a divisor",
        ),
        (
            [
                {
                    "schedule": "gpipe",
                    "transport": TEMPORAL,
                    "placement": [["east", "central"], ["central", "west"]],
                    "training": {"stages": 2},
                }
            ],
            {},
            "variants.0.transport.sharing: the replicas of stage 0 in one DP-cell are in central and east: place",
        ),
        ([{"schedule": "torch-gpipe"}], {}, "variants.0.schedule: torch-gpipe is torch's own: give compute: {kind: t"),
        (
            [{"schedule": "torch-gpipe"}],
            {"compute": {"kind": "torch"}},
            "variants.0.schedule: torch-gpipe keeps its activations, so that the others should too: give compute.check",
        ),
        (
            [{"schedule": "torch-ddp"}],
            {"compute": TORCH},
            "variants.0.training.stages: torch-ddp trains whole replicas: 1 stage, not 6",
        ),
        (
            [{"schedule": "torch-1f1b"}],
            {"compute": TORCH},
            "variants.0.training.microbatches: 4, where torch-1f1b needs one for each of the 6 stages",
        ),
        (
            [{"schedule": "torch-gpipe", "transport": {"connections": 4}}],
            {"compute": TORCH},
            "variants.0.transport.connections: torch's Gloo makes its own connections: leave connections out",
        ),
        (
            [{"schedule": "torch-gpipe", "transport": {"overlap": False}}],
            {"compute": TORCH},
            "variants.0.transport.overlap: torch's Gloo makes its own connections: leave overlap out",
        ),
        (
            [{"schedule": "torch-gpipe", "transport": {"receive": "blocks"}}],
            {"compute": TORCH},
            "variants.0.transport.receive: torch's Gloo makes its own connections: leave receive out",
        ),
        (
            [{"schedule": "torch-gpipe"}],
            {"compute": {**TORCH, "check_iteration": 0}, "training": {"warmup": 2}},
            "compute.check_iteration: torch runs every schedule here itself, and no profiler checks its busy times: ",
        ),
        (
            [{"schedule": "torch-gpipe", "options": {"a": 1}}],
            {"compute": TORCH},
            "variants.0.options: torch-gpipe takes none: leave options out",
        ),
        (
            [{"schedule": "gpipe"}],
            {"compute": {"kind": "torch"}, "dilation": 2},
            "dilation: what torch computes cannot",
        ),
        (
            [{"schedule": "gpipe"}],
            {"training": {"stages": 2, "text": "nowhere.txt"}},
            "training.text: replayed compute reads no text: give compute: {kind: torch}",
        ),
        (
            [{"schedule": "gpipe"}],
            {"training": {"stages": 2, "text": "nowhere.txt"}, "compute": {"kind": "torch"}},
            "training.text: nowhere.txt is no file: give the path of a text",
        ),
        (
            [{"schedule": "torch-gpipe", "training": {"memory_bound": 2}}],
            {"compute": TORCH},
            "variants.0.training.memory_bound: torch-gpipe keeps no bound of microbatches: leave memory_bound out",
        ),
        (
            [{"schedule": "gpipe"}],
            {
                "training": {"stages": 2, "text": "LICENSE-OF-NOBODY"},
                "compute": {"kind": "torch"},
                "model": {"layers": 2, "hidden": 8, "context": 8, "heads": 2, "vocabulary": 9},
            },
            "training.text: LICENSE-OF-NOBODY is no file",
        ),
        (
            [{"schedule": "gpipe"}],
            {"compute": {**TORCH, "check_iteration": 1}, "model": "gpt-tiny", "training": {"stages": 2}},
            "compute.check_iteration: 1, counted from 0, is measured, and the profiler slows what it watches: give a ",
        ),
        (
            [{"schedule": "gpipe", "transport": {"all_reduce": "nccl"}}],
            {},
            "variants.0.transport.all_reduce: nccl all-reduces what torch computes: give compute: {kind: torch}",
        ),
        (
            [{"schedule": "gpipe", "transport": {"all_reduce": "nccl"}}],
            {**TINY, "compute": {**TORCH, "device": "cpu"}},
            "variants.0.transport.all_reduce: nccl all-reduces between GPUs: give compute.device: cuda",
        ),
        (
            [{"schedule": "gpipe", "transport": {"all_reduce": "gloo"}}],
            {**TINY, "training": {"stages": 2}},
            "variants.0.transport.all_reduce: one pipeline has no gradients to all-reduce: give more training",
        ),
        (
            [{"schedule": "gpipe", "transport": {"all_reduce": "gloo"}, "placement": [["east"] * 2, ["west"] * 2]}],
            TINY,
            "variants.0.transport.all_reduce: the replicas of stage 0 lie in east and west, and gloo stays in one ",
        ),
        (
            [{"schedule": "torch-gpipe", "transport": {"all_reduce": "gloo"}}],
            {**TINY, "training": {"stages": 2, "pipelines": 2}},
            "variants.0.transport.all_reduce: torch's Gloo makes its own connections: leave all_reduce out",
        ),
        (
            [{"schedule": "gpipe", "transport": {"all_reduce": "gloo", "all_reduce_overlap": True}}],
            TINY,
            "variants.0.transport.all_reduce_overlap: gloo sums all gradients at once, after the backward: give ",
        ),
        (
            [{"schedule": "gpipe", "transport": {"bucket": "1MiB"}}],
            TINY,
            "variants.0.transport.bucket: without overlap all gradients are summed at once: give all_reduce_overlap: ",
        ),
        (
            [{"schedule": "gpipe", "transport": {"all_reduce_overlap": True, "bucket": "1KiB"}}],
            TINY,
            "variants.0.transport.bucket: '1KiB' is below 4KiB",
        ),
        (
            [{"schedule": "torch-gpipe", "transport": {"all_reduce_overlap": True}}],
            {**TINY, "training": {"stages": 2, "pipelines": 2}},
            "variants.0.transport.all_reduce_overlap: torch's Gloo makes its own connections: leave all_reduce_overlap",
        ),
        (
            [{"schedule": "dp", "transport": {"all_reduce": "hierarchical"}}],
            {"training": {"stages": 1, "pipelines": 8}},
            "variants.0.transport.all_reduce: hierarchical pairs each replica of a stage with one in every other "
            "datacenter, and stage 0 has 3 in ",
        ),
        (
            [{"schedule": "dp", "transport": {"all_reduce": "hierarchical"}}],
            {"training": {"stages": 1, "pipelines": 6}, "compute": {"gradient": "5B", "activation": "1B"}},
            "variants.0.transport.all_reduce: hierarchical gives each of the 6 replicas of stage 0 a part of its "
            "gradients, and at once there are 5 B of them: give ring",
        ),
        (
            [{"schedule": "dp", "transport": {"all_reduce": "hierarchical"}}],
            {"training": {"stages": 1, "pipelines": 1}},
            "variants.0.transport.all_reduce: one pipeline has no gradients to all-reduce: give more training",
        ),
        (
            [{"schedule": "dp", "transport": {"all_reduce": "butterfly"}}],
            {"training": {"stages": 1, "pipelines": 1}},
            "variants.0.transport.all_reduce: one pipeline has no gradients to all-reduce: give more training",
        ),
        (
            [{"schedule": "dp"}],
            {"training": {"stages": 1, "pipelines": 13}},
            "training.stages: 13 pipelines of 1 stage need 13 GPUs, one each, and the hosts have 12 (",
        ),
    ],
)
def test_variants_that_cannot_run_are_refused(
    variants: list[dict[str, Any]], document: dict[str, Any], text: str
) -> None:
    assert refusal(*variants, **document).startswith(f"exp.yaml: {text}")


def test_a_text_that_is_shorter_than_a_sequence_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "short.txt"
    text.write_text("x" * 128)
    document = {
        "topology": TOPOLOGY,
        "model": "gpt-tiny",
        "compute": {"kind": "torch"},
        "training": {"stages": 2, "text": "short.txt"},
    }
    with pytest.raises(InputError, match="holds 128 bytes, a sequence and the token after it take 129: give a longer"):
        parse_experiment(document, "exp.yaml", tmp_path)
    text.write_text("x" * 129)
    assert parse_experiment(document, "exp.yaml", tmp_path).points()[0].text == str(text)


def test_more_pipelines_than_gpus_have_one_stage_each_that_does_not_fit() -> None:
    text = refusal({"schedule": "gpipe"}, training={"pipelines": 13})
    assert text.startswith("exp.yaml: training.stages: 13 pipelines of 1 stage need 13 GPUs, one each, and the hosts")
    assert resolved({"schedule": "gpipe"}, training={"pipelines": 4})[0].placement.stages == 3
    apart = refusal({"schedule": "gpipe"}, training={"pipelines": 5})
    assert "5 pipelines of 1 stage, replicas of a stage in one datacenter, do not fit" in apart


def test_a_variants_own_fields_of_training_come_before_those_of_all() -> None:
    own = {"stages": 2, "pipelines": 1, "microbatches": 8, "memory_bound": 8}
    common = {"stages": 3, "pipelines": 2, "microbatches": 4, "memory_bound": 6}
    plain, changed = resolved({"schedule": "gpipe"}, {"schedule": "gpipe", "training": own}, training=common)
    for variant, wanted in ((plain, common), (changed, own)):
        assert (variant.placement.stages, variant.pipelines) == (wanted["stages"], wanted["pipelines"])
        assert (variant.microbatches, variant.memory_bound) == (wanted["microbatches"], wanted["memory_bound"])


def test_there_are_1024_stages_at_most() -> None:
    def document(hosts: int) -> dict[str, Any]:
        return {"topology": {"datacenters": [{"name": "east", "hosts": hosts, "gpus_per_host": 64}]}, "training": {}}

    (variant,) = resolved({"schedule": "gpipe", "training": {"stages": 1}}, **document(17))
    assert variant.placement.stages == 1
    assert "the hosts have 1088 GPUs, more than the 1024 stages there can be" in refusal(
        {"schedule": "gpipe"}, **document(17)
    )
    assert resolved({"schedule": "gpipe"}, **document(16))[0].placement.stages == 1024


def point(**changes: object) -> SweepPoint:
    (found,) = parse_experiment(two_jobs(**changes), "file", Path()).points()
    return found


def hosts(variant: ResolvedVariant) -> set[str]:
    return {place.host.name for place in variant.placement.places}


def test_every_variant_runs_alone_and_then_every_combination_at_once() -> None:
    variants = [
        {"name": "x", "schedule": "gpipe"},
        {"name": "y", "schedule": "1f1b"},
        {"name": "z", "schedule": "varuna"},
    ]
    jobs = [
        {"name": "a", "hosts": {"east": 2, "west": 2}, "variants": ["x", "y"]},
        {"name": "b", "hosts": {"east": 2, "west": 2}, "variants": ["z"]},
    ]
    found = point(variants=variants, jobs=jobs)
    assert [variant.name for variant in found.variants] == [
        "x",
        "y",
        "z",
        "x beside z",
        "z beside x",
        "y beside z",
        "z beside y",
    ]
    assert [trial.variant for trial in found.trials()] == [variant.name for variant in found.variants]
    beside = found.variant("z beside y")
    assert [other.name for other in beside.beside] == ["y"]
    assert (beside.jobs.job, beside.jobs.alone) == ("b", "z")
    assert [each.name for each in beside.at_once] == ["y", "z beside y"]


def test_jobs_take_hosts_in_order_and_share_none() -> None:
    found = point()
    ours, theirs = (found.variant(name) for name in ("ours", "theirs"))
    assert hosts(ours) == {"east-0", "east-1", "west-0", "west-1"}
    assert hosts(theirs) == {"east-2", "east-3", "west-2", "west-3"}
    assert hosts(found.variant("ours beside theirs")) == hosts(ours)


def test_a_job_may_train_for_other_iterations() -> None:
    jobs = two_jobs()["jobs"]
    found = point(jobs=[jobs[0], {**jobs[1], "iterations": 9}])
    assert [found.iterations(found.variant(name)) for name in ("ours", "theirs", "theirs beside ours")] == [4, 9, 9]


def test_the_network_must_carry_jobs_at_once() -> None:
    together = point(rate="unlimited")
    alone = point(rate="unlimited", jobs=None)
    assert together.demand.wan_bps == 2 * 2 * 2 * 200_000_000
    assert together.demand.wan_bps == alone.demand.wan_bps


def test_names_that_clash_with_those_beside_others_are_refused() -> None:
    variants = [{"name": "ours", "schedule": "gpipe"}, {"name": "theirs", "schedule": "1f1b"}]
    variants.append({"name": "ours beside theirs", "schedule": "gpipe"})
    jobs = two_jobs()["jobs"]
    jobs[0]["variants"] = ["ours", "ours beside theirs"]
    with pytest.raises(InputError, match="a variant is named 'ours beside theirs', as that one is beside others"):
        point(variants=variants, jobs=jobs)
