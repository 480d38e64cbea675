"""Buckets that ranks sum one after the other, in a thread beside the one that completes them."""

from queue import SimpleQueue
from threading import Thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.transport.ring.test_ring import adder
from wanbed.workloads.transport.event import BucketSummed, Closed, Event, Failed
from wanbed.workloads.transport.peer import TransportError
from wanbed.workloads.transport.ring.bucket_ring import BucketRing
from wanbed.workloads.transport.ring.buckets import bucket_count, complete_ns, cut_buckets
from wanbed.workloads.transport.ring.ring import RingAllReduce

PATIENCE_S = 60


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


class Replica:
    """A rank that completes its buckets one after the other, and has them summed meanwhile."""

    def __init__(self, end, arrays: list[np.ndarray]) -> None:
        self.end, self.arrays = end, arrays
        self.reported: SimpleQueue[Event] = SimpleQueue()
        ring = RingAllReduce(end.plan, end.transport)
        self.ring = BucketRing(ring, end.events, arrays[0].itemsize, adder(arrays[0].dtype), self.reported.put)
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
        ranks = [Replica(joined.ends[rank], each) for rank, each in enumerate(arrays)]
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
        ranks = [Replica(joined.ends[rank], [np.zeros(100_000, "i4")]) for rank in (0, 1)]
        for rank in ranks:
            rank.ring.complete(lambda rank=rank: memoryview(rank.arrays[0]).cast("B"))
        for made in (made for sockets in joined.bare[2].values() for made in sockets):
            made.close()
        for rank in ranks:
            event = rank.reported.get(timeout=PATIENCE_S)
            assert isinstance(event, Failed)
            assert isinstance(event.error, TransportError)
