import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.transport.frames.cutting import Cutting
from wanbed.workloads.transport.frames.frame import CHUNK_BYTES

SIZES = st.integers(1, 100) | st.integers(1, 2**30)


@given(SIZES, st.integers(1, 8), st.integers(1, 64))
def test_chunks_cover_the_transfer_evenly_over_node_pairs(total_bytes: int, shares: int, connections: int) -> None:
    cutting = Cutting(total_bytes, shares, connections)
    chunks = [cutting.chunk(index) for index in range(cutting.chunks)]
    assert [offset for offset, _ in chunks] == [0, *(sum(chunk) for chunk in chunks[:-1])]
    assert sum(chunks[-1]) == total_bytes
    assert {length for _, length in chunks} <= {cutting.largest_bytes, cutting.largest_bytes - 1}
    assert 1 <= min(length for _, length in chunks) <= cutting.largest_bytes <= CHUNK_BYTES
    counts = {len(cutting.chunks_of(position)) for position in range(shares)}
    assert len(counts) == 1 or total_bytes < shares
    assert all(cutting.index(*chunk) == index for index, chunk in enumerate(chunks))


@pytest.mark.parametrize(
    ("total_bytes", "shares", "chunks"),
    [
        (32 * 2**20, 1, 32),
        (32 * 2**20, 4, 64),
        (5_000_000, 4, 64),
        (100_000, 4, 4),
        (3, 4, 3),
        (2**20, 1, 16),
        (2**18, 2, 16),
    ],
)
def test_a_node_pair_has_sixteen_chunks_unless_they_would_be_too_small(
    total_bytes: int, shares: int, chunks: int
) -> None:
    assert Cutting(total_bytes, shares).chunks == chunks


def test_a_transfer_of_any_size_is_cut_without_listing_its_chunks() -> None:
    tracemalloc.start()
    cutting = Cutting(2**50 + 1, 3, 64)
    middle = cutting.chunks // 2
    assert cutting.index(*cutting.chunk(middle)) == middle
    assert sum(cutting.chunk(cutting.chunks - 1)) == 2**50 + 1
    assert len(cutting.chunks_of(2)) * 3 == cutting.chunks > 2**30
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 10_000


@given(SIZES, st.integers(1, 8), st.integers(0, 2**31), st.integers(0, 2**21))
def test_offset_and_length_determine_the_chunk_index(total_bytes: int, shares: int, offset: int, length: int) -> None:
    cutting = Cutting(total_bytes, shares)
    index = cutting.index(offset, length)
    first = max(0, offset * cutting.chunks // total_bytes - 2)
    near = {cutting.chunk(each): each for each in range(first, cutting.chunks)[:5]}
    assert index == near.get((offset, length))


def test_bytes_that_are_no_chunk_have_no_index() -> None:
    cutting = Cutting(1000, 4)
    assert cutting.index(250, 250) == 1
    assert cutting.index(250, 249) is None
    assert cutting.index(249, 250) is None


@pytest.mark.parametrize(("connections", "chunks"), [(1, 16), (4, 16), (8, 32), (11, 44), (64, 128)])
def test_a_connection_has_four_chunks_unless_they_would_be_too_small(connections: int, chunks: int) -> None:
    assert Cutting(2**21, 1, connections).chunks == chunks
