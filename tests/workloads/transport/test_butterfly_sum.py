"""Butterfly all-reduces between replicas in this process, against numpy."""

from queue import Empty

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.transport.summing_replica import PATIENCE_S, Replica, adder, reduce_all
from wanbed.workloads.transport.butterfly_sum import GATHER, SCATTER, ButterflyAllReduce
from wanbed.workloads.transport.event import BucketSummed, Closed, SegmentReceived
from wanbed.workloads.transport.frame import FrameHeader, FrameKind
from wanbed.workloads.transport.peer import TransportError
from wanbed.workloads.transport.ring_sum import BucketThread

ELEMENTS = st.lists(st.integers(1, 20) | st.integers(1, 600_000), min_size=1, max_size=3)


def check_all_reduced(joined, arrays: list[list[np.ndarray]]) -> None:
    for replica in reduce_all(joined, arrays):
        assert [type(event) for event in replica.others] == [Closed]


@settings(max_examples=40, deadline=None)
@given(
    replicas=st.integers(2, 5),
    elements=ELEMENTS,
    dtype=st.sampled_from(["i8", "i4", "i2", "u1"]),
    connections=st.integers(1, 3),
    piece_bytes=st.none() | st.integers(4096, 2**20),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_replica_ends_with_numpys_sum(
    mesh: type, *, replicas, elements, dtype, connections, piece_bytes, seed
) -> None:
    generator = np.random.default_rng(seed)
    arrays = [[generator.integers(0, 100, count).astype(dtype) for count in elements] for _ in range(replicas)]
    sums = [sum((each[index] for each in arrays[1:]), start=arrays[0][index]) for index in range(len(elements))]
    with mesh(
        replicas, 1, 0, 1, iterations=3, connections=connections, piece_bytes=piece_bytes, butterfly=True
    ) as joined:
        check_all_reduced(joined, arrays)
    for each in arrays:
        for ours, expected in zip(each, sums, strict=True):
            np.testing.assert_array_equal(ours, expected)


@settings(max_examples=20, deadline=None)
@given(replicas=st.integers(2, 5), elements=ELEMENTS, connections=st.integers(1, 3))
def test_blank_data_is_exchanged_and_stays_as_it_is(mesh: type, *, replicas, elements, connections) -> None:
    arrays = [[np.full(count, rank, "i4") for count in elements] for rank in range(replicas)]
    with mesh(replicas, 1, 0, 1, iterations=3, connections=connections, blank=True, butterfly=True) as joined:
        check_all_reduced(joined, arrays)
    for rank, own in enumerate(arrays):
        assert all((array == rank).all() for array in own)


def test_floating_point_numbers_are_added_to_the_owners_in_the_order_of_ranks(mesh: type) -> None:
    generator = np.random.default_rng(1)
    given = [generator.standard_normal(300_000, dtype="f4") for _ in range(4)]
    expected = np.empty_like(given[0])
    for owner in range(4):
        part = slice(75_000 * owner, 75_000 * (owner + 1))
        total = given[owner][part].copy()
        for other in range(4):
            if other != owner:
                total += given[other][part]
        expected[part] = total
    arrays = [[each.copy()] for each in given]
    with mesh(4, 1, 0, 1, butterfly=True) as joined:
        check_all_reduced(joined, arrays)
    for (ours,) in arrays:
        np.testing.assert_array_equal(ours, expected)


def test_each_replica_sends_its_parts_to_their_owners_and_the_sum_of_its_own_to_all(mesh: type) -> None:
    with mesh(3, 1, 0, 1, butterfly=True) as joined:
        early = Replica(joined.ends[0], [np.ones(3_000_000, "i4")])
        late = joined.ends[2]
        events: list[SegmentReceived] = []
        while sum(event.payload.nbytes for event in events) < 4_000_000:
            events.append(late.events.get(timeout=PATIENCE_S))
        # Sums wait for all: without rank 1's part nothing more comes.
        with pytest.raises(Empty):
            late.events.get(timeout=0.2)
        assert {(event.peer.rank, event.step, event.segment_bytes) for event in events} == {(0, SCATTER, 4_000_000)}
        for event in events:
            late.events.put(event)
        others = [Replica(joined.ends[1], [np.ones(3_000_000, "i4")]), Replica(late, [np.ones(3_000_000, "i4")])]
        for replica in (early, *others):
            replica.thread.join()
            assert replica.error is None
            assert (replica.arrays[0] == 3).all()


@pytest.mark.parametrize(
    "header",
    [
        FrameHeader(FrameKind.SEGMENT, 1, 0, SCATTER, 39, 0, 39),
        FrameHeader(FrameKind.SEGMENT, 1, 0, SCATTER, 40, 4, 36),
        FrameHeader(FrameKind.SEGMENT, 1, 0, GATHER, 40, 0, 36),
    ],
)
@pytest.mark.parametrize("blank", [False, True])
def test_a_chunk_that_does_not_fit_is_reported_with_its_sender(mesh: type, header: FrameHeader, blank: bool) -> None:
    with mesh(2, 1, 0, 1, connections=1, by_hand=(1,), blank=blank, butterfly=True) as joined:
        replica = Replica(joined.ends[0], [np.zeros(20, "i4")])
        joined.bare[1][0][0].send(header.encode() + bytes(header.length))
        replica.thread.join()
        assert isinstance(replica.error, TransportError)
        assert str(replica.error).startswith("rank 1 (host-1, 127.0.0.1): it sent a chunk of ")


def test_a_chunk_that_comes_twice_is_reported(mesh: type) -> None:
    with mesh(2, 1, 0, 1, connections=1, by_hand=(1,), butterfly=True) as joined:
        replica = Replica(joined.ends[0], [np.zeros(20, "i4")])
        chunk = FrameHeader(FrameKind.SEGMENT, 1, 0, SCATTER, 40, 0, 40).encode() + bytes(40)
        joined.bare[1][0][0].send(chunk + chunk)
        replica.thread.join()
        assert isinstance(replica.error, TransportError)
        assert "came before" in str(replica.error)


def test_a_lost_replica_ends_the_all_reduce_everywhere(mesh: type) -> None:
    with mesh(4, 1, 0, 1, by_hand=(2,), butterfly=True) as joined:
        replicas = [Replica(joined.ends[rank], [np.zeros(100_000, "i4")]) for rank in (0, 1, 3)]
        for made in (made for sockets in joined.bare[2].values() for made in sockets):
            made.close()
        for replica in replicas:
            replica.thread.join()
            assert isinstance(replica.error, TransportError)


def test_buckets_are_summed_one_after_the_other_in_a_thread(mesh: type) -> None:
    arrays = [[np.full(200_000, rank + 10 * bucket, "i4") for bucket in range(3)] for rank in range(3)]
    reported: list[list] = [[] for _ in range(3)]
    with mesh(3, 1, 0, 1, iterations=3, butterfly=True) as joined:
        threads = []
        for rank, own in enumerate(arrays):
            end = joined.ends[rank]
            over = ButterflyAllReduce(end.plan, end.transport)
            threads.append(BucketThread(over, end.events, 4, adder(own[0].dtype), reported[rank].append))
            for array in own:
                threads[-1].complete(lambda array=array: memoryview(array).cast("B"))
        for thread in threads:
            thread.close()
    for rank, own in enumerate(arrays):
        assert [(type(event), event.parts) for event in reported[rank]] == [(BucketSummed, 3)] * 3
        for bucket, array in enumerate(own):
            assert (array == 3 + 30 * bucket).all()


def test_a_configuration_without_pairs_is_refused(mesh: type) -> None:
    with mesh(3, 1, 0, 1) as joined, pytest.raises(ValueError, match="no butterfly"):
        ButterflyAllReduce(joined.ends[0].plan, joined.ends[0].transport)
