import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.transport.frames.frame import (
    CHUNK_BYTES,
    CHUNK_KINDS,
    HEADER_BYTES,
    HELLO_BYTES,
    LAST_OWN,
    SHUTDOWN,
    FrameError,
    FrameHeader,
    FrameKind,
    Hello,
    credit,
    decode_header,
    decode_hello,
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


@st.composite
def hellos(draw: st.DrawFn) -> Hello:
    connections = draw(st.integers(1, 2**16 - 1))
    token = draw(st.binary(min_size=16, max_size=16))
    return Hello(token, draw(UINT32), draw(st.integers(0, connections - 1)), connections)


@given(chunks() | CREDITS | st.sampled_from([SHUTDOWN, LAST_OWN]))
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
        (SHUTDOWN._replace(length=1), "shutdown carries a chunk"),
        (SHUTDOWN._replace(kind=10), "unknown kind 10"),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(header: FrameHeader, fault: str) -> None:
    with pytest.raises(FrameError, match=fault):
        decode_header(header.encode())


def test_a_connection_beyond_the_number_of_connections_is_refused() -> None:
    with pytest.raises(FrameError, match="connection 3 of 3"):
        decode_hello(Hello(bytes(16), 0, 3, 3).encode())


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wanbed.workloads.transport.frames.frame.WIRE_VERSION", 7)
    frame = SHUTDOWN.encode()
    monkeypatch.undo()
    with pytest.raises(FrameError, match="speaks version 7, this program speaks 4"):
        decode_header(frame)
