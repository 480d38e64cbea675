"""All-reduces over rings one in the other: inside each datacenter, and across them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.transport.test_ring_sum import Replica, reduce_all
from wanbed.workloads.transport.event import Closed, SegmentReceived
from wanbed.workloads.transport.frame import CHUNK_BYTES
from wanbed.workloads.transport.peer import Peer, TransportError
from wanbed.workloads.transport.ring_round import (
    LEAST_CHUNK_BYTES,
    RingPass,
    RingRound,
    cut_segments,
    ring_chunk_bytes,
    ring_passes,
    ring_steps,
    summed_segment,
)


@given(st.integers(2, 12))
def test_every_replica_gets_the_sum_of_every_segment(replicas: int) -> None:
    steps = [ring_steps(position, replicas) for position in range(replicas)]
    held = [[{position} for _ in range(replicas)] for position in range(replicas)]
    for number in range(2 * (replicas - 1)):
        sent = [set(held[position][steps[position][number].sends]) for position in range(replicas)]
        for position in range(replicas):
            step = steps[position][number]
            assert step.receives == steps[position - 1][number].sends
            if step.adds:
                assert not held[position][step.receives] & sent[position - 1]
                held[position][step.receives] |= sent[position - 1]
            else:
                held[position][step.receives] = sent[position - 1]
    assert all(segment == set(range(replicas)) for segments in held for segment in segments)


@given(st.integers(2, 12), st.sampled_from([1, 2, 4, 8]))
def test_each_step_sends_the_segment_received_before(replicas: int, position: int) -> None:
    steps = ring_steps(position % replicas, replicas)
    assert [step.receives for step in steps[:-1]] == [step.sends for step in steps[1:]]


@given(st.integers(0, 10**7), st.sampled_from([1, 2, 4, 8, 12]), st.integers(2, 12))
def test_segments_cover_the_data_end_between_elements_and_differ_by_one(
    elements: int, element_bytes: int, replicas: int
) -> None:
    segments = cut_segments(elements * element_bytes, element_bytes, replicas)
    assert [segments[0][0], *(end for _, end in segments)] == [
        *(start for start, _ in segments),
        elements * element_bytes,
    ]
    sizes = {(end - start) // element_bytes for start, end in segments}
    assert all(end % element_bytes == 0 for _, end in segments)
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("total_bytes", "element_bytes"), [(10, 4), (8, 0), (2 * CHUNK_BYTES, 2 * CHUNK_BYTES)])
def test_data_of_partial_elements_is_refused(total_bytes: int, element_bytes: int) -> None:
    with pytest.raises(ValueError, match="element"):
        cut_segments(total_bytes, element_bytes, 2)


@given(st.integers(0, 10**10), st.sampled_from([1, 2, 4, 8, 12]), st.integers(2, 12))
def test_chunks_are_whole_elements_within_bounds(elements: int, element_bytes: int, replicas: int) -> None:
    chunk_bytes = ring_chunk_bytes(elements * element_bytes, element_bytes, replicas)
    segment_bytes = elements * element_bytes // replicas
    assert chunk_bytes % element_bytes == 0
    assert LEAST_CHUNK_BYTES - element_bytes < chunk_bytes <= CHUNK_BYTES
    assert chunk_bytes <= max(LEAST_CHUNK_BYTES, segment_bytes // 256)


@given(st.integers(1, 10**9), st.integers(2, 12), st.integers(2, 64))
def test_each_connection_has_four_chunks_of_a_segment(total_bytes: int, replicas: int, connections: int) -> None:
    chunk_bytes = ring_chunk_bytes(total_bytes, 1, replicas, connections)
    assert chunk_bytes <= ring_chunk_bytes(total_bytes, 1, replicas)
    assert chunk_bytes == 16_384 or total_bytes // replicas // chunk_bytes >= 4 * connections


@given(st.integers(1, 10**9), st.sampled_from([1, 4, 12]), st.integers(2, 12), st.integers(1, 64))
def test_a_size_that_is_given_is_taken_whatever_there_is_to_send(
    elements: int, element_bytes: int, replicas: int, connections: int
) -> None:
    chunk_bytes = ring_chunk_bytes(elements * element_bytes, element_bytes, replicas, connections, 100_000)
    assert chunk_bytes == 100_000 - 100_000 % element_bytes


@pytest.mark.parametrize(("total_bytes", "window_bytes"), [(3 * 2**20, 3 * 2**20), (600 * 2**20, 200 * 2**20)])
def test_the_window_is_64_mib_and_at_least_one_segment(total_bytes: int, window_bytes: int) -> None:
    ring = RingRound(0, memoryview(bytearray(total_bytes)), 1, 0, 3)
    chunk_bytes = ring_chunk_bytes(total_bytes, 1, 3)
    assert window_bytes <= ring.window * chunk_bytes < window_bytes + 3 * chunk_bytes


PREVIOUS = Peer(2, "east-2", "10.0.0.3", 5000, 1)


def received(ring_bytes: int, step: int, offset: int, length: int, *, replicas: int = 3) -> SegmentReceived:
    """A chunk for position 0 of a ring, of the segment that comes in that step."""
    start, end = cut_segments(ring_bytes, 1, replicas)[ring_steps(0, replicas)[step].receives]
    return SegmentReceived(PREVIOUS, 0, step, end - start, offset, memoryview(bytes(length)))


@given(st.randoms(use_true_random=False), st.integers(0, 5 * LEAST_CHUNK_BYTES))
def test_a_round_completes_with_chunks_in_any_order(chance, total_bytes: int) -> None:
    ring = RingRound(0, memoryview(bytearray(total_bytes)), 1, 0, 3)
    chunk_bytes = ring_chunk_bytes(total_bytes, 1, 3)
    expected = [
        (number, offset, min(chunk_bytes, end - start - offset))
        for number, step in enumerate(ring_steps(0, 3))
        for start, end in [cut_segments(total_bytes, 1, 3)[step.receives]]
        for offset in range(0, end - start, chunk_bytes)
    ]
    chance.shuffle(expected)
    for step, offset, length in expected:
        assert not ring.complete
        chunk = received(total_bytes, step, offset, length)
        place, adds = ring.take(chunk)
        assert (place.nbytes, adds) == (length, step < 2)
        with pytest.raises(TransportError, match="does not fit or came before"):
            ring.take(chunk)
    assert ring.complete


@pytest.mark.parametrize(
    ("offset", "length"),
    [(1, LEAST_CHUNK_BYTES), (0, LEAST_CHUNK_BYTES - 1), (LEAST_CHUNK_BYTES, 1), (2 * LEAST_CHUNK_BYTES, 1)],
)
def test_a_chunk_at_a_wrong_offset_is_refused(offset: int, length: int) -> None:
    ring = RingRound(0, memoryview(bytearray(6 * LEAST_CHUNK_BYTES)), 1, 0, 3)
    with pytest.raises(TransportError, match="does not fit or came before"):
        ring.take(received(6 * LEAST_CHUNK_BYTES, 0, offset, length))


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
