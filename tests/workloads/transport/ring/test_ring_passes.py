"""All-reduces over rings one in the other: inside each datacenter, and across them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.transport.ring.test_ring import Replica, reduce_all
from wanbed.workloads.transport.event import Closed
from wanbed.workloads.transport.peer import TransportError
from wanbed.workloads.transport.ring.ring_passes import RingPass, ring_passes, summed_segment


def test_a_single_ring_is_one_pass_of_all_its_steps() -> None:
    assert ring_passes([4]) == (RingPass(0, range(6)),)


def test_two_rings_scatter_inside_sum_across_and_gather_inside() -> None:
    assert ring_passes([4, 3]) == (RingPass(0, range(3)), RingPass(1, range(4)), RingPass(0, range(3, 6)))


@given(st.integers(0, 1000), st.integers(1, 8), st.integers(1, 12))
def test_the_replicas_have_summed_every_byte_once(elements: int, element_bytes: int, replicas: int) -> None:
    data = memoryview(np.random.default_rng(1).bytes(elements * element_bytes))
    parts = [summed_segment(data, element_bytes, position, replicas) for position in range(replicas)]
    assert b"".join(bytes(part) for part in [parts[-1], *parts[:-1]]) == bytes(data)


@settings(max_examples=30, deadline=None)
@given(
    datacenters=st.integers(1, 3),
    seats=st.integers(1, 3),
    elements=st.lists(st.integers(1, 30) | st.integers(1, 300_000), min_size=1, max_size=3),
    dtype=st.sampled_from(["i8", "i2", "u1"]),
    connections=st.integers(1, 2),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_replica_ends_with_numpys_sum_of_integers(
    mesh: type, *, datacenters, seats, elements, dtype, connections, seed
) -> None:
    generator, replicas = np.random.default_rng(seed), datacenters * seats
    arrays = [[generator.integers(0, 20, count).astype(dtype) for count in elements] for _ in range(replicas)]
    sums = [sum((each[index] for each in arrays[1:]), start=arrays[0][index]) for index in range(len(elements))]
    if replicas == 1:
        return
    with mesh(replicas, 1, 0, 1, datacenters=datacenters, iterations=3, connections=connections) as joined:
        reduce_all(joined, arrays)
    for each in arrays:
        for ours, expected in zip(each, sums, strict=True):
            np.testing.assert_array_equal(ours, expected)


def test_floating_point_sums_are_near_the_rings_and_the_same_at_every_replica(mesh: type) -> None:
    generator = np.random.default_rng(1)
    given = [generator.standard_normal(300_000, dtype="f4") for _ in range(6)]
    flat, nested = ([[array.copy()] for array in given] for _ in range(2))
    with mesh(6, 1, 0, 1) as joined:
        reduce_all(joined, flat)
    with mesh(6, 1, 0, 1, datacenters=3) as joined:
        reduce_all(joined, nested)
    scale = np.abs(given).sum(axis=0)
    assert np.max(np.abs(nested[0][0] - flat[0][0]) / scale) < 1e-6
    for (ours,) in nested:
        np.testing.assert_array_equal(ours, nested[0][0])


@pytest.mark.parametrize("datacenters", [1, 4])
def test_one_datacenter_or_one_replica_in_each_is_the_ring_bit_for_bit(mesh: type, datacenters: int) -> None:
    generator = np.random.default_rng(2)
    given = [generator.standard_normal(100_000, dtype="f4") for _ in range(4)]
    flat, nested = ([[array.copy()] for array in given] for _ in range(2))
    with mesh(4, 1, 0, 1) as joined:
        reduce_all(joined, flat)
    with mesh(4, 1, 0, 1, datacenters=datacenters) as joined:
        reduce_all(joined, nested)
    np.testing.assert_array_equal(nested[0][0], flat[0][0])


@settings(max_examples=15, deadline=None)
@given(
    datacenters=st.integers(2, 3),
    seats=st.integers(2, 3),
    elements=st.lists(st.integers(1, 30) | st.integers(1, 300_000), min_size=1, max_size=3),
)
def test_blank_data_goes_through_all_rings(mesh: type, *, datacenters, seats, elements) -> None:
    arrays = [[np.full(count, rank, "i4") for count in elements] for rank in range(datacenters * seats)]
    with mesh(len(arrays), 1, 0, 1, datacenters=datacenters, iterations=3, blank=True) as joined:
        ended = reduce_all(joined, arrays)
    assert [[type(event) for event in replica.others] for replica in ended] == [[Closed]] * len(arrays)


@pytest.mark.parametrize("blank", [False, True])
def test_a_late_replica_holds_up_all_others_and_nothing_is_lost(mesh: type, blank: bool) -> None:
    arrays = [np.ones(1_000_000, "i4") for _ in range(6)]
    with mesh(6, 1, 0, 1, datacenters=2, blank=blank) as joined:
        early = [Replica(joined.ends[rank], [arrays[rank]]) for rank in range(5)]
        for replica in early:
            replica.thread.join(timeout=0.05)
            assert replica.thread.is_alive()
        for replica in [*early, Replica(joined.ends[5], [arrays[5]])]:
            replica.thread.join()
            assert replica.error is None
    assert blank or all((array == 6).all() for array in arrays)


@pytest.mark.parametrize("blank", [False, True])
def test_a_lost_replica_ends_the_all_reduce_in_every_datacenter(mesh: type, blank: bool) -> None:
    with mesh(6, 1, 0, 1, datacenters=3, by_hand=(2,), blank=blank) as joined:
        replicas = [Replica(joined.ends[rank], [np.zeros(100_000, "i4")]) for rank in (0, 1, 3, 4, 5)]
        for made in (made for sockets in joined.bare[2].values() for made in sockets):
            made.close()
        for replica in replicas:
            replica.thread.join()
            assert isinstance(replica.error, TransportError)
