import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.transport.frame import (
    CHUNK_BYTES,
    CHUNK_KINDS,
    HEADER_BYTES,
    HELLO_BYTES,
    KEEP_WARM,
    LAST_OWN,
    SHUTDOWN,
    Cutting,
    FrameError,
    FrameHeader,
    FrameKind,
    Hello,
    credit,
    decode_header,
    decode_hello,
    request,
)

UINT32 = st.integers(0, 2**32 - 1)


@st.composite
def chunks(draw: st.DrawFn) -> FrameHeader:
    total_bytes = draw(st.integers(1, 2**40))
    offset = draw(st.integers(0, total_bytes - 1))
    length = draw(st.integers(1, min(CHUNK_BYTES, total_bytes - offset)))
    kind = draw(st.sampled_from(CHUNK_KINDS))
    return FrameHeader(kind, draw(UINT32), draw(UINT32), draw(UINT32), total_bytes, offset, length)


CREDITS = st.builds(credit, st.sampled_from(CHUNK_KINDS), st.integers(1, 2**20))
REQUESTS = st.builds(request, st.sampled_from([FrameKind.ACTIVATION, FrameKind.GRADIENT]), UINT32, UINT32, UINT32)


@st.composite
def hellos(draw: st.DrawFn) -> Hello:
    connections = draw(st.integers(1, 2**16 - 1))
    token = draw(st.binary(min_size=16, max_size=16))
    return Hello(token, draw(UINT32), draw(st.integers(0, connections - 1)), connections)


@given(chunks() | CREDITS | REQUESTS | st.sampled_from([SHUTDOWN, LAST_OWN, KEEP_WARM]))
def test_headers_read_back_as_written(header: FrameHeader) -> None:
    frame = header.encode()
    assert len(frame) == HEADER_BYTES
    assert decode_header(frame) == header


@given(hellos())
def test_hellos_read_back_as_written(hello: Hello) -> None:
    frame = hello.encode()
    assert len(frame) == HELLO_BYTES
    assert decode_hello(frame) == hello


@given(header=chunks(), bit=st.integers(0, HEADER_BYTES * 8 - 1))
def test_a_flipped_bit_is_found(header: FrameHeader, bit: int) -> None:
    frame = bytearray(header.encode())
    frame[bit // 8] ^= 1 << bit % 8
    with pytest.raises(FrameError):
        decode_header(frame)


@given(st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES), st.binary(min_size=HELLO_BYTES, max_size=HELLO_BYTES))
def test_foreign_bytes_are_refused(header: bytes, hello: bytes) -> None:
    with pytest.raises(FrameError, match="another protocol"):
        decode_header(header)
    with pytest.raises(FrameError, match="another protocol"):
        decode_hello(hello)


@given(chunks(), st.integers(0, HEADER_BYTES - 1))
def test_a_truncated_header_is_refused(header: FrameHeader, length: int) -> None:
    with pytest.raises(FrameError, match=f"has {length} bytes in place of {HEADER_BYTES}"):
        decode_header(header.encode()[:length])


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        (FrameHeader(FrameKind.ACTIVATION, 0, 0, 0, 0, 0, 0), "inconsistent"),
        (FrameHeader(FrameKind.ACTIVATION, 0, 0, 0, 100, 0, 0), "inconsistent"),
        (FrameHeader(FrameKind.SEGMENT, 0, 0, 0, 100, 1, 100), "inconsistent"),
        (FrameHeader(FrameKind.GRADIENT, 0, 0, 0, 2 * CHUNK_BYTES, 0, CHUNK_BYTES + 1), "inconsistent"),
        (credit(FrameKind.SHUTDOWN, 1), "credit is inconsistent"),
        (credit(FrameKind.SEGMENT, 0), "credit is inconsistent"),
        (credit(FrameKind.SEGMENT, 1)._replace(length=1), "credit is inconsistent"),
        (request(FrameKind.SEGMENT, 0, 0, 0), "request is inconsistent"),
        (request(FrameKind.GRADIENT, 0, 0, 0)._replace(length=1), "request is inconsistent"),
        (SHUTDOWN._replace(length=1), "shutdown carries a chunk"),
        (KEEP_WARM._replace(length=1), "keep warm carries a chunk"),
        (SHUTDOWN._replace(kind=12), "unknown kind 12"),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(header: FrameHeader, fault: str) -> None:
    with pytest.raises(FrameError, match=fault):
        decode_header(header.encode())


def test_a_connection_beyond_the_number_of_connections_is_refused() -> None:
    with pytest.raises(FrameError, match="connection 3 of 3"):
        decode_hello(Hello(bytes(16), 0, 3, 3).encode())


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wanbed.workloads.transport.frame.WIRE_VERSION", 7)
    frame = SHUTDOWN.encode()
    monkeypatch.undo()
    with pytest.raises(FrameError, match="speaks version 7, this program speaks 6"):
        decode_header(frame)


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
