"""The rings of a stage's replicas: one of all, or one inside each datacenter and those of counterparts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.runner.resolve.placement import StagePlace
from wanbed.runner.resolve.stage_rings import StageRings, by_datacenter, most_connections, ring_pairs
from wanbed.testbed.network.topology import Host


def replicas(*datacenters: str) -> list[StagePlace]:
    """One replica in each of these datacenters, on a host of its own."""
    return [
        StagePlace(pipeline, 0, Host(f"{name}-{pipeline}", name, pipeline, 1), 0)
        for pipeline, name in enumerate(datacenters)
    ]


def pipelines(rings: StageRings) -> list[list[list[int]]]:
    return [[[place.pipeline for place in ring] for ring in level] for level in rings.levels]


def test_without_levels_there_is_one_ring_that_enters_each_datacenter_once() -> None:
    assert pipelines(StageRings.of(replicas("a", "b", "a", "b"))) == [[[0, 2, 1, 3]]]
    assert StageRings.of(replicas("a")).levels == ()


def test_of_each_byte_that_a_ring_sums_each_hop_carries_two_but_two_of_all() -> None:
    # Four replicas, two hops between the datacenters, 2 x 3/4 over each.
    assert StageRings.of(replicas("a", "b", "a", "b")).wan_ratio == 3
    assert StageRings.of(replicas("a", "a", "a")).wan_ratio == StageRings.of(replicas("a")).wan_ratio == 0
    # Inside nothing crosses. Then two rings of two sum half each, and both of their hops carry all of it.
    assert StageRings.of(replicas("a", "b", "a", "b"), hierarchical=True).wan_ratio == 2


def test_each_replica_is_in_a_ring_of_its_datacenter_and_in_one_of_its_counterparts() -> None:
    rings = StageRings.of(replicas("a", "b", "c", "a", "b", "c"), hierarchical=True)
    assert pipelines(rings) == [[[0, 3], [1, 4], [2, 5]], [[0, 1, 2], [3, 4, 5]]]
    inside, across = rings.with_place(rings.levels[0][1][1])
    assert [place.pipeline for place in inside] == [1, 4]
    assert [place.pipeline for place in across] == [3, 4, 5]


def test_in_a_butterfly_each_two_replicas_are_a_ring_and_sum_the_parts_of_both() -> None:
    places = replicas("a", "b", "a")
    rings = StageRings.of(places, butterfly=True)
    assert pipelines(rings) == [[[0, 1], [0, 2], [1, 2]]]
    assert [[place.pipeline for place in ring] for ring in rings.with_place(places[1])] == [[0, 1], [1, 2]]
    assert rings.summed_bytes(90) == rings.summed_bytes(88) == (60,)
    # Each way between two replicas carries a part and the sum of one: four ways between the datacenters.
    assert rings.wan_ratio == pytest.approx(4 * 2 / 3)
    assert StageRings.of(replicas("a"), butterfly=True).levels == ()
    two = replicas("a", "b")
    assert StageRings.of(two, butterfly=True).pairs == StageRings.of(two).pairs


def test_a_chain_lies_along_the_ring_and_leaves_out_a_hop_each_way() -> None:
    rings = StageRings.of(replicas("a", "b", "a", "b"), chained=True)
    assert pipelines(rings) == [[[0, 2, 1, 3]]]
    assert [count for _, count in rings.hop_passes()] == [1, 2, 2, 1]
    # From the second replica to the third twice, from the last to the first once.
    assert rings.wan_ratio == 3
    assert (rings.cut(4), StageRings.of(replicas("a", "b")).cut(4)) == ((1, 2), (4, 6))
    assert StageRings.of(replicas("a"), chained=True).levels == ()


@pytest.mark.parametrize("datacenters", ["aaaa", "abcd", "a"])
def test_one_datacenter_or_one_replica_in_each_is_a_single_ring(datacenters: str) -> None:
    assert StageRings.of(replicas(*datacenters), hierarchical=True) == StageRings.of(replicas(*datacenters))


def test_datacenters_with_different_numbers_of_replicas_have_no_levels() -> None:
    with pytest.raises(ValueError, match="zip"):
        StageRings.of(replicas("a", "a", "b"), hierarchical=True)


@given(st.integers(2, 5), st.integers(2, 6), st.integers(1, 10**9))
def test_a_rank_sends_over_the_wan_what_its_share_takes(datacenters: int, seats: int, size_bytes: int) -> None:
    rings = StageRings.of(replicas(*[f"dc{number}" for number in range(datacenters)] * seats), hierarchical=True)
    assert rings.sizes == (seats, datacenters)
    assert rings.summed_bytes(size_bytes) == (size_bytes, -(-size_bytes // seats))
    crossing = [one.datacenter != other.datacenter for one, other in rings.pairs]
    assert sum(crossing) == datacenters * seats == len(crossing) - sum(crossing)


def test_a_ring_cuts_for_the_most_connections_between_two_of_its_places() -> None:
    (ring,) = StageRings.of(replicas("a", "b", "c")).rings
    hosts = [(one.host.name, other.host.name) for one, other in ring_pairs(ring)]
    assert most_connections(ring_pairs(ring), {hosts[0]: 2, hosts[1]: 5, hosts[2][::-1]: 3}) == 5
    assert list(by_datacenter(replicas("b", "a", "b"))) == ["b", "a"]
