"""Variants with ``schedule: diloco``: what they resolve to, and what they refuse."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.support.runner.small_experiment import sweep_point
from wanbed.ground.errors import InputError
from wanbed.runner.bound.lower_bound import lower_bounds
from wanbed.runner.emulation.rank_configs import SharedConfig, configure_ranks
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.runs.manifest import gather_manifest
from wanbed.testbed.network.address_book import AddressBook
from wanbed.workloads.rank_config import read_rank_config
from wanbed.workloads.schedules.registry import schedule_class_path
from wanbed.workloads.synchronization.synchronization import Synchronization, WireFormat

THREE: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": name, "hosts": 2} for name in ("east", "central", "west")],
        "wan": {"latency": "20ms", "rate": "100Mbit"},
    },
    "compute": {"forward": "10ms", "activation": "64KiB", "gradient": "1MiB"},
    "training": {"stages": 2, "pipelines": 3, "microbatches": 4, "iterations": 10, "warmup": 2, "precision": "fp32"},
}

STREAMING = {"sync_every": 4, "fragments": 2, "delay": 1, "alpha": 0.5, "wire": "int8"}


def point(options: dict[str, Any], variant: dict[str, Any] | None = None, **sections: Any) -> SweepPoint:
    written = {"name": "diloco", "schedule": "diloco", "options": options, **(variant or {})}
    return sweep_point({**THREE, "variants": [written], **sections})


def refusal(options: dict[str, Any], variant: dict[str, Any] | None = None, **sections: Any) -> str:
    with pytest.raises(InputError) as caught:
        point(options, variant, **sections)
    (mistake,) = caught.value.mistakes
    assert mistake.isprintable()
    return mistake


def test_each_datacenter_has_a_whole_replica_with_its_inner_schedule() -> None:
    (variant,) = point({**STREAMING, "inner": "gpipe"}).variants
    assert variant.schedule == schedule_class_path("gpipe")
    assert [{place.datacenter for place in row} for row in variant.placement.pipelines] == [
        {"east"},
        {"central"},
        {"west"},
    ]
    assert variant.synchronization == Synchronization(4, 2, 1, 0.5, wire=WireFormat.INT8)
    assert not variant.overlaps_all_reduce


def test_the_inner_schedule_is_1f1b_unless_written_and_takes_its_options() -> None:
    (variant,) = point({"sync_every": 2}).variants
    assert variant.schedule == schedule_class_path("1f1b")
    (deep,) = point({"sync_every": 2, "inner": "1f1b", "inner_options": {"warmup_depth": 2}}).variants
    assert deep.schedule_options(0) == {"warmup_depth": 2}


def test_a_stage_s_parameters_are_cut_into_fragments_of_the_wire_format() -> None:
    (variant,) = point(STREAMING).variants
    assert variant.parameters == (2**18, 2**18)
    assert variant.fragments_bytes(1) == (WireFormat.INT8.encoded_bytes(2**17),) * 2
    (half,) = point({"sync_every": 2}, training={**THREE["training"], "precision": "bf16"}).variants
    assert half.parameters == (2**19, 2**19)


def test_a_rank_gets_what_it_needs_to_synchronise(tmp_path: Path) -> None:
    own = point(STREAMING)
    (variant,) = own.variants
    connections = {(one.host.name, other.host.name): 1 for one, other in variant.pairs}
    setting = SharedConfig(AddressBook(own.topology, slot=3), connections, 1, "ab" * 16, 0, tmp_path, 1)
    for config in configure_ranks(own, variant, setting):
        config.write(tmp_path / "rank.json")
        assert read_rank_config(tmp_path / "rank.json") == config
        assert config.compute.synchronization == variant.synchronization
        assert config.compute.fragments_bytes == variant.fragments_bytes(config.place.stage)
        assert config.links.rings.all_reduces(config.iterations) == 5
        assert [ring.ranks for ring in config.links.rings.replicas] == [
            tuple(pipeline * 2 + config.place.stage for pipeline in range(3))
        ]


def test_no_lower_bound_is_claimed() -> None:
    own = point(STREAMING)
    (variant,) = own.variants
    assert lower_bounds(own.topology, variant) is None
    inner = {field.name: getattr(variant, field.name) for field in fields(PipelineVariant)}
    assert lower_bounds(own.topology, PipelineVariant(**inner)) is not None


def test_the_manifest_has_it_as_resolved() -> None:
    experiment = parse_experiment(
        {**THREE, "variants": [{"name": "diloco", "schedule": "diloco", "options": STREAMING}]}, "exp.yaml", Path()
    )
    document = gather_manifest(experiment)["sweep_points"][0]["variants"]["diloco"]["synchronization"]
    assert document["sync_every"] == 4
    assert document["wire"] == "int8"
    assert document["parameters"] == [2**18, 2**18]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "variants.0.options.sync_every: this field is required"),
        ({"sync_every": 0}, "variants.0.options.sync_every: 0 is below 1"),
        ({"sync_every": 2, "wire": "int4"}, "variants.0.options.wire: 'int4' is not known"),
        ({"sync_every": 2, "momentum": 1}, "variants.0.options.momentum: unknown field"),
        ({"sync_every": 2, "outer": {"lr": 0}}, "variants.0.options.outer.lr: 0 is not above 0"),
        ({"sync_every": 2, "delay": 2}, "variants.0.options.delay: 2, and a fragment is synchronised every 2"),
        ({"sync_every": 2, "quorum": 2}, "variants.0.options.quorum: a ring waits for all replicas"),
        ({"sync_every": 2, "topology": "star", "quorum": 9}, "variants.0.options.quorum: 9, of "),
        ({"sync_every": 2, "inner": "1f2b"}, "variants.0.options.inner: no schedule '1f2b'"),
        ({"sync_every": 2, "inner": "torch-ddp"}, "variants.0.options.inner: no schedule 'torch-ddp'"),
        ({"sync_every": 9}, "variants.0.options.sync_every: 9, and 8 iterations are measured"),
    ],
)
def test_options_that_cannot_be_are_refused_by_field(options: dict[str, Any], message: str) -> None:
    assert message in refusal(options)


@pytest.mark.parametrize(
    ("sync_every", "fragments", "rounded"),
    [(8, 4, 8), (7, 4, 8), (6, 4, 8), (5, 4, 4), (5, 2, 4), (7, 2, 8), (1, 4, 4), (8, 3, 9), (7, 3, 6)],
)
def test_fragments_are_synchronised_at_equal_distances_of_whole_iterations(
    sync_every: int, fragments: int, rounded: int
) -> None:
    longer = {"training": {**THREE["training"], "iterations": 12}}
    (variant,) = point({"sync_every": sync_every, "fragments": fragments}, **longer).variants
    found = variant.synchronization
    assert (found.sync_every, found.period) == (rounded, rounded // fragments)
    applied = [found.fragment_applied(iteration) for iteration in range(rounded)]
    assert [each for each in applied if each is not None] == list(range(fragments))


def test_what_is_measured_has_to_hold_what_is_rounded() -> None:
    assert "sync_every: 9, and 8 iterations are measured" in refusal({"sync_every": 8, "fragments": 3})


def test_without_warm_up_the_first_iteration_does_not_count_as_measured() -> None:
    unwarmed = {"training": {**THREE["training"], "iterations": 4, "warmup": 0}}
    assert "sync_every: 4, and 3 iterations are measured" in refusal({"sync_every": 4}, **unwarmed)
    unwarmed["training"]["iterations"] = 5
    assert point({"sync_every": 4}, **unwarmed).variants


@pytest.mark.parametrize(
    ("variant", "sections", "message"),
    [
        ({"placement": "auto"}, {}, "variants.0.placement: the planner places stages"),
        ({"transport": {"sharing": "temporal"}}, {}, "variants.0.transport.sharing: replicas that train alone"),
        ({"transport": {"all_reduce": "gloo"}}, {}, "variants.0.transport.all_reduce: no gradients are all-reduced"),
        ({"training": {"pipelines": 1}}, {}, "variants.0.training.pipelines: 1, and a single replica"),
        ({}, {"fail": [{"rank": 0, "at": "1s"}], "engine": "emulate", "clock": "virtual"}, "variants.0.schedule:"),
        (
            {"training": {"stages": 1, "pipelines": 2}},
            {
                "jobs": [
                    {"name": "a", "hosts": {"east": 1, "west": 1}, "variants": ["diloco"]},
                    {"name": "b", "hosts": {"east": 1, "west": 1}, "variants": ["other"]},
                ],
                "variants": [
                    {"name": "diloco", "schedule": "diloco", "options": {"sync_every": 2}},
                    {"name": "other", "schedule": "1f1b"},
                ],
            },
            "variants.0.schedule: replicas that synchronise seldom do not run beside another job",
        ),
    ],
)
def test_what_synchronisations_do_not_go_with_is_refused(
    variant: dict[str, Any], sections: dict[str, Any], message: str
) -> None:
    assert message in refusal({"sync_every": 2}, variant, **sections)


def test_a_star_takes_a_part_at_once() -> None:
    mistake = refusal({"sync_every": 2, "topology": "star"}, {"transport": {"all_reduce_overlap": True}})
    assert (
        "variants.0.transport.all_reduce_overlap: the replica that gathers a star's sum takes each part at" in mistake
    )


@pytest.mark.parametrize("wire", list(WireFormat))
@pytest.mark.parametrize(("bucket", "buckets"), [("1MiB", 1), ("512KiB", 1), ("511KiB", 2), ("100KiB", 6)])
def test_fragments_that_begin_in_a_backward_are_cut_into_equal_buckets(
    wire: WireFormat, bucket: str, buckets: int
) -> None:
    # Stages of 1 MiB of gradients in fp32.
    options = {"sync_every": 4, "fragments": 2, "wire": wire.value}
    transport = {"all_reduce_overlap": True, "bucket": bucket}
    (variant,) = point(options, {"transport": transport}, engine="simulate").variants
    assert variant.begins_beside_backward
    elements = 2**17
    for fragment, whole_bytes in zip(variant.fragments_buckets_bytes(1), variant.fragments_bytes(1), strict=True):
        assert len(fragment) == buckets
        assert set(fragment) <= {wire.encoded_bytes(elements // buckets), wire.encoded_bytes(-(-elements // buckets))}
        # The last block of each bucket is filled up.
        assert 0 <= sum(fragment) - whole_bytes <= (buckets - 1) * wire.element_bytes
    assert variant.buckets_bytes(1) == variant.fragments_buckets_bytes(1)[0]


def test_fragments_are_summed_at_once_unless_they_begin_in_a_backward() -> None:
    (variant,) = point(STREAMING).variants
    assert not variant.begins_beside_backward
    assert variant.fragments_buckets_bytes(0) == tuple((each,) for each in variant.fragments_bytes(0))
