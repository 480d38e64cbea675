"""Reduce and broadcast along a chain between replicas in this process, against numpy."""

from contextlib import suppress
from queue import Empty

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.transport.summing_replica import PATIENCE_S, Replica, reduce_all
from wanbed.workloads.transport.chain_sum import ChainAllReduce
from wanbed.workloads.transport.event import Closed, SegmentReceived
from wanbed.workloads.transport.frame import FrameHeader, FrameKind
from wanbed.workloads.transport.peer import TransportError

ELEMENTS = st.lists(st.integers(1, 20) | st.integers(1, 600_000), min_size=1, max_size=3)


def check_all_reduced(joined, arrays: list[list[np.ndarray]]) -> None:
    for replica in reduce_all(joined, arrays):
        assert [type(event) for event in replica.others] == [Closed]


@settings(max_examples=40, deadline=None)
@given(
    replicas=st.integers(2, 6),
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
        replicas, 1, 0, 1, iterations=3, connections=connections, piece_bytes=piece_bytes, chained=True
    ) as joined:
        check_all_reduced(joined, arrays)
    for each in arrays:
        for ours, expected in zip(each, sums, strict=True):
            np.testing.assert_array_equal(ours, expected)


@settings(max_examples=20, deadline=None)
@given(replicas=st.integers(2, 5), elements=ELEMENTS, connections=st.integers(1, 3))
def test_blank_data_goes_along_and_stays_as_it_is(mesh: type, *, replicas, elements, connections) -> None:
    arrays = [[np.full(count, rank, "i4") for count in elements] for rank in range(replicas)]
    with mesh(replicas, 1, 0, 1, iterations=3, connections=connections, blank=True, chained=True) as joined:
        check_all_reduced(joined, arrays)
    for rank, own in enumerate(arrays):
        assert all((array == rank).all() for array in own)


def test_floating_point_numbers_are_added_in_the_order_of_the_chain_and_all_have_the_same_bits(mesh: type) -> None:
    generator = np.random.default_rng(1)
    given = [generator.standard_normal(300_000, dtype="f4") for _ in range(4)]
    expected = given[1] + given[2] + given[3] + given[0]
    arrays = [[each.copy()] for each in given]
    with mesh(4, 1, 0, 1, chained=True) as joined:
        check_all_reduced(joined, arrays)
    for (ours,) in arrays:
        np.testing.assert_array_equal(ours, expected)


def test_the_first_replica_broadcasts_nothing_before_all_is_reduced(mesh: type) -> None:
    size_bytes = 1_200_000
    header = FrameHeader(FrameKind.SEGMENT, 1, 0, 0, size_bytes, 0, 262_144)
    with mesh(2, 1, 0, 1, connections=1, by_hand=(1,), chained=True) as joined:
        root = Replica(joined.ends[0], [np.ones(size_bytes // 4, "i4")])
        (sock,) = joined.bare[1][0]
        sock.setblocking(True)
        sock.settimeout(0.3)
        sock.sendall(header.encode() + bytes(262_144))
        # It may report the chunk, and sends none.
        received = 0
        with suppress(TimeoutError):
            while count := len(sock.recv(2**20)):
                received += count
        assert received < 1000
        assert root.thread.is_alive()
        sock.close()
        root.thread.join()
        assert isinstance(root.error, TransportError)


def test_the_second_replica_begins_and_each_adds_its_own(mesh: type) -> None:
    with mesh(3, 1, 0, 1, chained=True) as joined:
        arrays = [np.full(300_000, 10**rank, "i4") for rank in range(3)]
        early = Replica(joined.ends[0], [arrays[0]]), Replica(joined.ends[1], [arrays[1]])
        late = joined.ends[2]
        events: list[SegmentReceived] = []
        while sum(event.payload.nbytes for event in events) < 1_200_000:
            events.append(late.events.get(timeout=PATIENCE_S))
        with pytest.raises(Empty):
            late.events.get(timeout=0.2)
        assert {(event.peer.rank, event.step, event.segment_bytes) for event in events} == {(1, 0, 1_200_000)}
        for event in events:
            late.events.put(event)
        for replica in (*early, Replica(late, [arrays[2]])):
            replica.thread.join()
            assert replica.error is None
            assert (replica.arrays[0] == 111).all()


@pytest.mark.parametrize(
    "header",
    [
        FrameHeader(FrameKind.SEGMENT, 1, 0, 0, 79, 0, 79),
        FrameHeader(FrameKind.SEGMENT, 1, 0, 0, 80, 4, 76),
        FrameHeader(FrameKind.SEGMENT, 1, 0, 1, 80, 0, 80),
    ],
)
def test_a_chunk_that_does_not_fit_is_reported_with_its_sender(mesh: type, header: FrameHeader) -> None:
    with mesh(2, 1, 0, 1, connections=1, by_hand=(1,), chained=True) as joined:
        replica = Replica(joined.ends[0], [np.zeros(20, "i4")])
        joined.bare[1][0][0].send(header.encode() + bytes(header.length))
        replica.thread.join()
        assert isinstance(replica.error, TransportError)
        assert str(replica.error).startswith("rank 1 (host-1, 127.0.0.1): it sent a chunk of ")


def test_a_configuration_without_a_chain_is_refused(mesh: type) -> None:
    with mesh(3, 1, 0, 1) as joined, pytest.raises(ValueError, match="no chain"):
        ChainAllReduce(joined.ends[0].plan, joined.ends[0].transport)
