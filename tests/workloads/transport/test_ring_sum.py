"""Buckets that ranks sum one after the other, in a thread beside the one that completes them."""

import random
from queue import Empty, SimpleQueue
from threading import Thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.transport.summing_replica import PATIENCE_S, Replica, adder, reduce_all
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.transport.event import (
    BucketSummed,
    Closed,
    Event,
    Failed,
    Received,
)
from wanbed.workloads.transport.frame import FrameHeader, FrameKind
from wanbed.workloads.transport.peer import TransportError
from wanbed.workloads.transport.ring_round import bucket_count, complete_ns, cut_buckets
from wanbed.workloads.transport.ring_sum import BucketThread, RingAllReduce


@settings(max_examples=40, deadline=None)
@given(
    replicas=st.integers(2, 5),
    elements=st.lists(st.integers(1, 20) | st.integers(1, 600_000), min_size=1, max_size=3),
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
    with mesh(replicas, 1, 0, 1, iterations=3, connections=connections, piece_bytes=piece_bytes) as joined:
        reduce_all(joined, arrays)
    for each in arrays:
        for ours, expected in zip(each, sums, strict=True):
            np.testing.assert_array_equal(ours, expected)


@settings(max_examples=20, deadline=None)
@given(
    replicas=st.integers(2, 5),
    elements=st.lists(st.integers(1, 20) | st.integers(1, 600_000), min_size=1, max_size=3),
    connections=st.integers(1, 3),
)
def test_blank_data_goes_round_and_stays_as_it_is(mesh: type, *, replicas, elements, connections) -> None:
    arrays = [[np.full(count, rank, "i4") for count in elements] for rank in range(replicas)]
    with mesh(replicas, 1, 0, 1, iterations=3, connections=connections, blank=True) as joined:
        ended = reduce_all(joined, arrays)
    for rank, replica in enumerate(ended):
        assert all((array == rank).all() for array in arrays[rank])
        assert [type(event) for event in replica.others] == [Closed]


def test_blank_chunks_of_replicas_that_are_ahead_are_kept(mesh: type) -> None:
    arrays = [np.ones(3_000_000, "i4") for _ in range(3)]
    with mesh(3, 1, 0, 1, blank=True) as joined:
        early = [Replica(joined.ends[rank], [arrays[rank]]) for rank in (0, 1)]
        early[0].thread.join(timeout=0.5)
        assert early[0].thread.is_alive()
        for replica in [*early, Replica(joined.ends[2], [arrays[2]])]:
            replica.thread.join()
            assert replica.error is None


def test_floating_point_sums_are_the_same_at_every_replica(mesh: type) -> None:
    generator = np.random.default_rng(1)
    arrays = [[generator.standard_normal(300_000, dtype="f4")] for _ in range(4)]
    expected = np.sum([each[0] for each in arrays], axis=0, dtype="f8")
    with mesh(4, 1, 0, 1) as joined:
        reduce_all(joined, arrays)
    for (ours,) in arrays:
        np.testing.assert_allclose(ours, expected, atol=1e-5)
        np.testing.assert_array_equal(ours, arrays[0][0])


def test_stage_messages_are_handled_during_the_all_reduce(mesh: type) -> None:
    # Stage 0's ring runs over the links between mates that its relays use too; stage 1 sends gradients meanwhile.
    size_bytes = 3_000_000
    payloads = {rank: random.randbytes(size_bytes) for rank in (1, 3, 5)}
    arrays = {rank: np.full(2_000_000, rank + 1, "i4") for rank in (0, 2, 4)}
    with mesh(3, 2, 3, size_bytes) as joined:
        replicas = {rank: Replica(joined.ends[rank], [array]) for rank, array in arrays.items()}
        for rank, payload in payloads.items():
            joined.ends[rank].transport.send(0, Message(MessageKind.GRADIENT, 0), memoryview(payload))
            joined.ends[rank].transport.close()
        for rank, replica in replicas.items():
            replica.thread.join()
            assert replica.error is None
            assert (arrays[rank] == 1 + 3 + 5).all()
            (received,) = (event for event in replica.others if isinstance(event, Received))
            assert bytes(received.payload) == payloads[rank + 1]


def test_a_late_replica_receives_the_chunks_of_the_others(mesh: type) -> None:
    with mesh(3, 1, 0, 1) as joined:
        arrays = [np.ones(3_000_000, "i4") for _ in range(3)]
        early = [Replica(joined.ends[rank], [arrays[rank]]) for rank in (0, 1)]
        late = joined.ends[2]
        events = []
        # The segment that the replica before it has, and the one that came to it from the first: of 4 MB each.
        while sum(event.payload.nbytes for event in events) < 2 * 4_000_000:
            events.append(late.events.get(timeout=PATIENCE_S))
        with pytest.raises(Empty):
            late.events.get(timeout=0.2)
        assert sum(event.payload.nbytes for event in events) == 2 * 4_000_000
        for event in events:
            late.events.put(event)
        early.append(Replica(late, [arrays[2]]))
        for replica in early:
            replica.thread.join()
            assert replica.error is None
    assert all((array == 3).all() for array in arrays)


@pytest.mark.parametrize(
    "header",
    [
        FrameHeader(FrameKind.SEGMENT, 1, 0, 0, 39, 0, 39),
        FrameHeader(FrameKind.SEGMENT, 1, 0, 0, 40, 4, 36),
        FrameHeader(FrameKind.SEGMENT, 1, 0, 0, 40, 0, 36),
    ],
)
@pytest.mark.parametrize("blank", [False, True])
def test_a_chunk_that_does_not_fit_is_reported_with_its_sender(mesh: type, header: FrameHeader, blank: bool) -> None:
    with mesh(2, 1, 0, 1, connections=1, by_hand=(1,), blank=blank) as joined:
        replica = Replica(joined.ends[0], [np.zeros(20, "i4")])
        joined.bare[1][0][0].send(header.encode() + bytes(header.length))
        replica.thread.join()
        assert isinstance(replica.error, TransportError)
        assert str(replica.error).startswith("rank 1 (host-1, 127.0.0.1): it sent a chunk of ")


def test_a_lost_replica_ends_the_all_reduce_everywhere(mesh: type) -> None:
    with mesh(4, 1, 0, 1, by_hand=(2,)) as joined:
        replicas = [Replica(joined.ends[rank], [np.zeros(100_000, "i4")]) for rank in (0, 1, 3)]
        for made in (made for sockets in joined.bare[2].values() for made in sockets):
            made.close()
        for replica in replicas:
            replica.thread.join()
            assert isinstance(replica.error, TransportError)


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(4096, 10**6))
def test_buckets_are_equal_and_hold_everything_the_last_bytes_first(
    elements: int, element_bytes: int, bucket_bytes: int
) -> None:
    total_bytes = elements * element_bytes
    buckets = bucket_count(total_bytes, bucket_bytes)
    cuts = cut_buckets(total_bytes, element_bytes, buckets)
    assert [start for start, _ in cuts] == [end for _, end in cuts[1:]] + [0]
    assert cuts[0][1] == total_bytes
    sizes = [end - start for start, end in cuts]
    assert max(sizes) - min(sizes) <= element_bytes
    assert len(sizes) == buckets == max(-(-total_bytes // bucket_bytes), 1)


def test_a_backward_completes_buckets_evenly_and_the_last_at_its_end() -> None:
    assert [complete_ns(100, 1100, bucket, 4) for bucket in range(4)] == [350, 600, 850, 1100]


def test_gradients_of_other_virtual_stages_are_complete_when_the_last_backward_begins() -> None:
    assert [complete_ns(100, 1100, bucket, 4, 2) for bucket in range(4)] == [100, 100, 600, 1100]
    assert complete_ns(100, 1100, 0, 1, 2) == 1100


class OverlappingReplica:
    """A rank that completes its buckets one after the other, and has them summed meanwhile."""

    def __init__(self, end, arrays: list[np.ndarray]) -> None:
        self.end, self.arrays = end, arrays
        self.reported: SimpleQueue[Event] = SimpleQueue()
        ring = RingAllReduce(end.plan, end.transport)
        self.ring = BucketThread(ring, end.events, arrays[0].itemsize, adder(arrays[0].dtype), self.reported.put)
        self.summed: list[BucketSummed] = []

    def run(self) -> None:
        for array in self.arrays:
            self.ring.complete(lambda array=array: memoryview(array).cast("B"))
        for _ in self.arrays:
            event = self.reported.get(timeout=PATIENCE_S)
            assert isinstance(event, BucketSummed)
            self.summed.append(event)
        self.ring.close()
        self.end.transport.close()
        assert isinstance(self.end.events.get(timeout=PATIENCE_S), Closed)


@settings(max_examples=20, deadline=None)
@given(
    replicas=st.integers(2, 5),
    sizes=st.lists(st.integers(1, 20) | st.integers(1, 200_000), min_size=1, max_size=4),
    blank=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_buckets_are_summed_in_order_at_every_replica(mesh: type, *, replicas, sizes, blank, seed) -> None:
    generator = np.random.default_rng(seed)
    arrays = [[generator.integers(0, 100, size).astype("i4") for size in sizes] for _ in range(replicas)]
    expected = [sum((each[index] for each in arrays[1:]), start=arrays[0][index]) for index in range(len(sizes))]
    with mesh(replicas, 1, 0, 1, iterations=len(sizes), blank=blank) as joined:
        ranks = [OverlappingReplica(joined.ends[rank], each) for rank, each in enumerate(arrays)]
        threads = [Thread(target=rank.run) for rank in ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for rank in ranks:
        assert [event.size_bytes for event in rank.summed] == [4 * size for size in sizes]
        assert all(one.end_ns <= other.start_ns for one, other in zip(rank.summed, rank.summed[1:], strict=False))
        for ours, total in zip(rank.arrays, expected, strict=True) if not blank else ():
            np.testing.assert_array_equal(ours, total)


@pytest.mark.parametrize("blank", [False, True])
def test_a_lost_replica_ends_the_sums_everywhere(mesh: type, blank: bool) -> None:
    with mesh(3, 1, 0, 1, by_hand=(2,), blank=blank) as joined:
        ranks = [OverlappingReplica(joined.ends[rank], [np.zeros(100_000, "i4")]) for rank in (0, 1)]
        for rank in ranks:
            rank.ring.complete(lambda rank=rank: memoryview(rank.arrays[0]).cast("B"))
        for made in (made for sockets in joined.bare[2].values() for made in sockets):
            made.close()
        for rank in ranks:
            event = rank.reported.get(timeout=PATIENCE_S)
            assert isinstance(event, Failed)
            assert isinstance(event.error, TransportError)
