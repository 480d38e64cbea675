"""The ring as Gloo runs it between replicas in this process, against numpy; each chunk waits for its announcement."""

import socket
from contextlib import suppress
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.transport.summing_replica import PATIENCE_S, Replica, reduce_all
from wanbed.workloads.transport.event import Closed
from wanbed.workloads.transport.frame import HEADER_BYTES, FrameHeader, FrameKind, credit, decode_header
from wanbed.workloads.transport.gloo_sum import GlooAllReduce, gloo_cut, gloo_turns
from wanbed.workloads.transport.peer import TransportError

MIB = 2**20
ELEMENTS = st.lists(st.integers(1, 20) | st.integers(1, 1_500_000), min_size=1, max_size=3)


def check_all_reduced(joined, arrays: list[list[np.ndarray]]) -> None:
    for replica in reduce_all(joined, arrays):
        assert [type(event) for event in replica.others] == [Closed]


@settings(max_examples=40, deadline=None)
@given(
    replicas=st.integers(2, 6),
    elements=ELEMENTS,
    dtype=st.sampled_from(["i8", "i4", "i2", "u1"]),
    connections=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_replica_ends_with_numpys_sum(mesh: type, *, replicas, elements, dtype, connections, seed) -> None:
    generator = np.random.default_rng(seed)
    arrays = [[generator.integers(0, 100, count).astype(dtype) for count in elements] for _ in range(replicas)]
    sums = [sum((each[index] for each in arrays[1:]), start=arrays[0][index]) for index in range(len(elements))]
    with mesh(replicas, 1, 0, 1, iterations=3, connections=connections, announced=True) as joined:
        check_all_reduced(joined, arrays)
    for each in arrays:
        for ours, expected in zip(each, sums, strict=True):
            np.testing.assert_array_equal(ours, expected)


@settings(max_examples=20, deadline=None)
@given(replicas=st.integers(2, 5), elements=ELEMENTS, connections=st.integers(1, 3))
def test_blank_data_goes_round_and_stays_as_it_is(mesh: type, *, replicas, elements, connections) -> None:
    arrays = [[np.full(count, rank, "i4") for count in elements] for rank in range(replicas)]
    with mesh(replicas, 1, 0, 1, iterations=3, connections=connections, blank=True, announced=True) as joined:
        check_all_reduced(joined, arrays)
    for rank, own in enumerate(arrays):
        assert all((array == rank).all() for array in own)


@pytest.mark.parametrize(
    ("mib", "replicas", "chunks", "chunk_bytes"),
    [
        (1, 4, 2, MIB // 8),
        (16, 4, 4, MIB),
        (64, 4, 16, MIB),
        (17, 4, 5, -(-17 * MIB // 80) * 4),
        (256, 32, 8, MIB),
    ],
)
def test_chunks_are_of_a_mebibyte_at_most_and_two_at_least(
    mib: int, replicas: int, chunks: int, chunk_bytes: int
) -> None:
    cut = gloo_cut(mib * MIB, 4, replicas)
    assert (cut.chunks(0), cut.chunk_bytes) == (chunks, chunk_bytes)


@given(st.integers(1, 10**8), st.sampled_from([1, 2, 4, 8]), st.integers(2, 12))
def test_in_each_pass_a_segment_goes_over_all_hops_but_one(elements: int, element_bytes: int, replicas: int) -> None:
    cut = gloo_cut(elements * element_bytes, element_bytes, replicas)
    sizes = [end - start for start, end in cut.segments]
    assert sum(sizes) == elements * element_bytes
    passes = [gloo_turns(cut, position) for position in range(replicas)]
    for position, (scatter, gather) in enumerate(passes):
        after = passes[(position + 1) % replicas]
        assert [turn.sends_bytes for turn in scatter] == [turn.receives_bytes for turn in after[0]]
        assert [turn.sends_bytes for turn in gather] == [turn.receives_bytes for turn in after[1]]
        assert sum(turn.sends_bytes for turn in scatter) == sum(sizes) - sizes[(position + 1) % replicas]
        assert sum(turn.sends_bytes for turn in gather) == sum(sizes) - sizes[(position + 2) % replicas]
        assert all(turn.sends_bytes <= max(MIB, element_bytes) for turn in chain(scatter, gather))


def received(sock: socket.socket) -> bytes:
    """What has come by the time that nothing further does."""
    found = bytearray()
    sock.settimeout(0.3)
    with suppress(TimeoutError):
        while part := sock.recv(2**20):
            found += part
    return bytes(found)


def announced(frames: bytes) -> int:
    headers = [decode_header(frames[at : at + HEADER_BYTES]) for at in range(0, len(frames), HEADER_BYTES)]
    assert {(header.kind, header.number) for header in headers} <= {(FrameKind.CREDIT, FrameKind.SEGMENT)}
    return sum(header.total_bytes for header in headers)


def test_a_replica_announces_two_chunks_and_sends_its_own_once_the_next_one_has(mesh: type) -> None:
    # Two replicas: of 8 MB each segment is 4 chunks of 1 MB. The other one is played here.
    with mesh(2, 1, 0, 1, connections=1, by_hand=(1,), announced=True) as joined:
        replica = Replica(joined.ends[0], [np.ones(2_000_000, "i4")])
        (sock,) = joined.bare[1][0]
        assert announced(received(sock)) == 2
        sock.settimeout(PATIENCE_S)
        sock.sendall(FrameHeader(FrameKind.SEGMENT, 1, 0, 0, 4_000_000, 0, 1_000_000).encode() + bytes(1_000_000))
        # Its own first chunk has not left, so that it announces none in place of the one that has come.
        assert received(sock) == b""
        sock.sendall(credit(FrameKind.SEGMENT, 1).encode())
        sent = received(sock)
        header = decode_header(sent[:HEADER_BYTES])
        assert (header.kind, header.offset, header.length) == (FrameKind.SEGMENT, 0, 1_000_000)
        assert announced(sent[HEADER_BYTES + header.length :]) == 1
        sock.close()
        replica.thread.join()
        assert isinstance(replica.error, TransportError)


def test_more_announcements_than_there_are_at_once_are_refused(mesh: type) -> None:
    with mesh(2, 1, 0, 1, connections=1, by_hand=(1,), announced=True) as joined:
        joined.bare[1][0][0].send(credit(FrameKind.SEGMENT, 3).encode())
        replica = Replica(joined.ends[0], [np.zeros(20, "i4")])
        replica.thread.join()
        assert "it gives credit for 1 chunks more" in str(replica.error)


@pytest.mark.parametrize(
    "header",
    [
        FrameHeader(FrameKind.SEGMENT, 1, 0, 0, 39, 0, 20),
        FrameHeader(FrameKind.SEGMENT, 1, 0, 0, 40, 4, 20),
        FrameHeader(FrameKind.SEGMENT, 1, 0, 0, 40, 0, 40),
    ],
)
def test_a_chunk_that_does_not_fit_is_reported_with_its_sender(mesh: type, header: FrameHeader) -> None:
    with mesh(2, 1, 0, 1, connections=1, by_hand=(1,), announced=True) as joined:
        replica = Replica(joined.ends[0], [np.zeros(20, "i4")])
        joined.bare[1][0][0].send(header.encode() + bytes(header.length))
        replica.thread.join()
        assert isinstance(replica.error, TransportError)
        assert str(replica.error).startswith("rank 1 (host-1, 127.0.0.1): it sent a chunk of ")


def test_a_configuration_without_announced_chunks_is_refused(mesh: type) -> None:
    with mesh(3, 1, 0, 1) as joined, pytest.raises(ValueError, match="no ring of announced chunks"):
        GlooAllReduce(joined.ends[0].plan, joined.ends[0].transport)
