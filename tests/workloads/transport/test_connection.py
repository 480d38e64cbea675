"""One connection over a socket pair: frames that go out in parts, headers that come in parts, blank payloads."""

import socket
from collections.abc import Callable, Iterator

import pytest

from wanbed.workloads.transport.connection import Connection
from wanbed.workloads.transport.frames.frame import HEADER_BYTES, SHUTDOWN, FrameHeader, FrameKind

Connect = Callable[..., tuple[Connection, socket.socket]]

LARGE_BYTES = 1 << 20


def header(length: int) -> FrameHeader:
    return FrameHeader(FrameKind.ACTIVATION, 1, 2, 3, LARGE_BYTES, 0, length)


@pytest.fixture
def connect() -> Iterator[Connect]:
    made: list[socket.socket] = []

    def pair(*, blank: bool = False, tcp: bool = False) -> tuple[Connection, socket.socket]:
        if tcp:
            with socket.create_server(("127.0.0.1", 0)) as listening:
                near = socket.create_connection(listening.getsockname())
                far, _ = listening.accept()
        else:
            near, far = socket.socketpair()
        made.extend((near, far))
        for each in (near, far):
            each.setblocking(False)
        return Connection(near, blank=blank), far

    yield pair
    for each in made:
        each.close()


def received(far: socket.socket) -> bytes:
    try:
        return far.recv(1 << 21)
    except BlockingIOError:
        return b""


def test_a_small_frame_goes_out_at_once(connect: Connect) -> None:
    connection, far = connect()
    assert not connection.sending
    assert connection.begin_frame(header(5), memoryview(b"01234"))
    assert not connection.sending
    assert received(far) == header(5).encode() + b"01234"
    assert connection.begin_frame(SHUTDOWN, memoryview(b""))
    assert received(far) == SHUTDOWN.encode()


def test_the_rest_of_a_large_frame_goes_out_when_it_is_pushed(
    connect: Connect,
) -> None:
    connection, far = connect()
    payload = bytes(range(256)) * (LARGE_BYTES // 256)
    assert connection.begin_frame(header(LARGE_BYTES), memoryview(payload))
    assert connection.sending
    got = b""
    while len(got) < HEADER_BYTES + LARGE_BYTES:
        got += received(far)
        if connection.sending:
            connection.push()
    assert got == header(LARGE_BYTES).encode() + payload
    assert not connection.sending


def test_nothing_is_begun_on_a_connection_that_takes_no_byte(
    connect: Connect,
) -> None:
    connection, far = connect()
    while True:
        try:
            connection.socket.send(bytes(4096))
        except BlockingIOError:
            break
    assert not connection.begin_frame(header(5), memoryview(b"01234"))
    assert not connection.sending
    while received(far):
        pass
    assert connection.begin_frame(header(5), memoryview(b"01234"))
    assert received(far) == header(5).encode() + b"01234"


def test_a_header_that_comes_in_parts_is_known_when_it_is_whole(
    connect: Connect,
) -> None:
    connection, far = connect()
    encoded = header(5).encode()
    assert connection.read_header() is None
    for part in (encoded[:1], encoded[1:10]):
        far.send(part)
        assert connection.read_header() is None
    far.send(encoded[10:] + b"01234" + SHUTDOWN.encode())
    assert connection.read_header() == header(5)
    memory = memoryview(bytearray(5))
    assert connection.read_payload(memory[:2]) == 2
    assert connection.read_payload(memory[2:]) == 3
    assert bytes(memory) == b"01234"
    assert connection.read_header() == SHUTDOWN
    assert connection.read_payload(memory) == 0


def test_a_blank_payload_has_its_length_and_leaves_memory_as_it_is(
    connect: Connect,
) -> None:
    connection, far = connect(blank=True, tcp=True)
    assert connection.begin_frame(header(5), memoryview(b"01234"))
    assert not connection.sending
    got = b""
    while len(got) < HEADER_BYTES + 5:
        got += received(far)
    assert got == header(5).encode() + bytes(5)
    far.send(header(5).encode() + b"01234")
    while (found := connection.read_header()) is None:
        pass
    assert found == header(5)
    memory = memoryview(bytearray(b"abcde"))
    assert connection.read_payload(memory) == 5
    assert bytes(memory) == b"abcde"


def test_it_wakes_up_for_as_many_bytes_as_it_is_told(
    connect: Connect,
) -> None:
    connection, _ = connect()
    assert connection.wakes_at == 1
    for unread_bytes in (1000, 1000, 1):
        connection.wake_at(unread_bytes)
        assert connection.wakes_at == unread_bytes
        assert connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == unread_bytes


def test_a_peer_that_has_closed_is_noticed(connect: Connect) -> None:
    connection, far = connect()
    far.close()
    with pytest.raises(EOFError):
        connection.read_header()
    with pytest.raises(EOFError):
        connection.read_payload(memoryview(bytearray(1)))
    with pytest.raises(OSError, match="Broken pipe"):
        connection.begin_frame(SHUTDOWN, memoryview(b""))
