import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.transport.event import SegmentReceived
from wanbed.workloads.transport.frames.frame import CHUNK_BYTES
from wanbed.workloads.transport.peer import Peer, TransportError
from wanbed.workloads.transport.ring.ring_round import (
    LEAST_CHUNK_BYTES,
    RingRound,
    cut_segments,
    ring_chunk_bytes,
    ring_steps,
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
