"""What follows from a resolved variant: who sums with whom, in which pieces, and what it is without."""

from typing import Any

import pytest

from tests.support.present import present
from tests.support.runner.small_experiment import sweep_point
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.resolved_variant import ResolvedVariant

THREE: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": name, "hosts": 2} for name in ("east", "central", "west")],
        "wan": {"latency": "20ms", "rate": "100Mbit"},
    },
    "compute": {"forward": "10ms", "activation": "64KiB", "gradient": "100KB"},
    "training": {"stages": 1, "pipelines": 3, "microbatches": 4, "iterations": 10, "warmup": 2, "precision": "fp32"},
}


def variant(schedule: str = "dp", options: dict[str, Any] | None = None, **changes: Any) -> ResolvedVariant:
    written = {"name": "v", "schedule": schedule, "options": options or {}, **changes.pop("variant", {})}
    point = sweep_point({**THREE, "variants": [written], **changes})
    return point.variants[0]


def ends(of: ResolvedVariant) -> list[tuple[int, int]]:
    rank = of.placement.rank
    return [(rank(one), rank(other)) for one, other in of.pairs]


def test_replicas_of_a_star_exchange_with_the_first_alone_and_those_of_a_ring_with_neighbours() -> None:
    star = variant("diloco", {"sync_every": 2, "topology": "star"})
    assert star.is_star
    assert ends(star) == [(0, 1), (0, 2)]
    ring = variant("diloco", {"sync_every": 2})
    assert not ring.is_star
    assert ends(ring) == ends(variant()) == [(0, 1), (0, 2), (1, 2)]
    four = {**THREE["training"], "pipelines": 4}
    assert ends(variant(training=four)) == [(0, 1), (0, 3), (1, 2), (2, 3)]
    assert ends(variant("diloco", {"sync_every": 2, "topology": "star"}, training=four)) == [(0, 1), (0, 2), (0, 3)]


def test_without_gradients_replicas_do_not_connect() -> None:
    alone = {**THREE["training"], "pipelines": 1, "stages": 3}
    assert ends(variant("gpipe", training=alone)) == [(0, 1), (1, 2)]


def test_what_is_transferred_is_named_with_its_size_and_its_ends() -> None:
    def listed(of: ResolvedVariant) -> list[tuple[str, int, tuple[int, int]]]:
        assert isinstance(of, PipelineVariant)
        rank = of.placement.rank
        return [(each.what, each.size_bytes, (rank(each.pair[0]), rank(each.pair[1]))) for each in of.transfers()]

    # Pseudo-gradients are in fp32, as the gradients are here.
    star = listed(variant("diloco", {"sync_every": 2, "topology": "star"}))
    assert star == [("a replica's part of a synchronisation", 100_000, ends) for ends in ((0, 1), (0, 2))]
    ring = listed(variant())
    assert ring == [("a ring's segment of the gradients", 33_333, ends) for ends in ((0, 1), (1, 2), (2, 0))]
    alone = {**THREE["training"], "pipelines": 1, "stages": 3}
    assert [each for each, _, _ in listed(variant("gpipe", training=alone))] == ["an activation"] * 2


def test_gradients_are_summed_at_once_or_in_buckets_that_add_up() -> None:
    overlapping: dict[str, Any] = {"variant": {"transport": {"all_reduce_overlap": True, "bucket": "30KB"}}}
    assert variant().buckets_bytes(0) == (100_000,)
    assert variant(compute={**THREE["compute"], "gradient": "60MiB"}).buckets_bytes(0) == (60 * 2**20,)
    assert variant(**overlapping).buckets_bytes(0) == (25_000,) * 4
    assert variant(**overlapping).overlaps_all_reduce
    assert not variant(**overlapping, training={**THREE["training"], "pipelines": 1}).overlaps_all_reduce
    assert not variant().overlaps_all_reduce


def test_of_replicas_that_synchronise_the_largest_fragment_counts() -> None:
    each = variant("diloco", {"sync_every": 4, "fragments": 4}, compute={**THREE["compute"], "gradient": "40B"})
    # Ten parameters of four bytes in four fragments.
    assert sorted(each.fragments_bytes(0)) == [8, 8, 12, 12]
    assert each.buckets_bytes(0) == (12,)
    assert each.state_bytes(0) == 2 * 4 * 10


def test_only_whole_replicas_of_a_star_with_a_quorum_can_be_lost() -> None:
    quorum = {"sync_every": 2, "topology": "star", "quorum": 2}
    assert variant("diloco", quorum).goes_on_without == {1, 2}
    assert variant("diloco", {"sync_every": 2, "topology": "star"}).goes_on_without == frozenset()
    assert variant().goes_on_without == frozenset()
    assert variant("diloco", quorum, training={**THREE["training"], "stages": 2}).goes_on_without == frozenset()


def test_a_repeat_changes_what_is_drawn_in_it_and_nothing_else() -> None:
    plain = variant()
    assert plain.in_repeat(0) is plain
    assert plain.in_repeat(3).repeat == 3
    varied = variant(compute={**THREE["compute"], "jitter": {"spread": "5%"}})
    assert varied.varies
    assert not varied.without_variation().varies
    assert plain.without_variation() is plain
    variation = present(varied.in_repeat(2).costs(1, 0).variation)
    assert (variation.repeat, variation.pipeline) == (2, 1)


def test_the_document_has_what_the_file_leaves_open() -> None:
    document = variant().document()
    assert document.keys() == {"placement", "microbatches", "pipelines_per_cell", "work"}
    assert document["placement"] == [[["east-0", 0]], [["central-0", 0]], [["west-0", 0]]]
    assert (document["microbatches"], document["pipelines_per_cell"]) == (4, 1)
    synchronized = variant("diloco", {"sync_every": 2}).document()["synchronization"]
    assert (synchronized["parameters"], synchronized["fragments_bytes"]) == ([25_000], [[100_000]])
    program = {"variants": [{"name": "p", "program": {"command": ["true"]}}]}
    point = sweep_point({"topology": THREE["topology"], **program})
    assert point.variants[0].document().keys() == {"placement"}


@pytest.mark.parametrize(("dilation", "expected"), [(1.0, 10), (2.5, 25), (0.5, 5)])
def test_costs_are_in_dilated_time(dilation: float, expected: int) -> None:
    durations = variant().costs(0, 0, dilation).durations
    assert (durations.forward_ns, durations.backward_ns) == (expected * 10**6, 2 * expected * 10**6)
