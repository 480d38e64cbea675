"""A link over socket pairs: what goes first, what waits, when it has ended, and what a peer must not send."""

import socket
from collections.abc import Callable, Iterator

import pytest

from wanbed.workloads.transport.chunk_queues import ChunkQueue, CreditQueue, QueuedChunk
from wanbed.workloads.transport.frame import (
    HEADER_BYTES,
    LAST_OWN,
    SHUTDOWN,
    FrameError,
    FrameHeader,
    FrameKind,
    credit,
    decode_header,
    request,
)
from wanbed.workloads.transport.link import Connection, Link
from wanbed.workloads.transport.peer import Peer


class Source:
    """Notes what happens to a chunk."""

    def __init__(self) -> None:
        self.happened: list[str] = []

    def begun(self) -> None:
        self.happened.append("begun")

    def accepted(self) -> None:
        self.happened.append("accepted")


class Placed:
    """The memory for a chunk, and whether it is complete."""

    def __init__(self, header: FrameHeader) -> None:
        self.header = header
        self.payload = memoryview(bytearray(header.length))
        self.is_complete = False

    def complete(self) -> None:
        self.is_complete = True


class Linked:
    """A link with two queues, of which the second one needs credit, and the bare far ends of its connections."""

    def __init__(self, connections: int, unread_bytes: int) -> None:
        pairs = [socket.socketpair() for _ in range(connections)]
        self.far = [far for _, far in pairs]
        self.sockets = [near for near, _ in pairs]
        for each in (*self.far, *self.sockets):
            each.setblocking(False)
        self.first, self.second = ChunkQueue(), CreditQueue()
        self.placed: list[Placed] = []
        self.asked: list[FrameHeader] = []
        self.touched: dict[Link, None] = {}
        self.link = Link(
            Peer(1, "west-0", "127.0.0.1", None, connections, unread_bytes=unread_bytes),
            self.sockets,
            [self.first, self.second],
            window_bytes=None,
            blank=False,
            credit_queues={FrameKind.SEGMENT: self.second},
            place=self._place,
            asked=self._asked,
            touched=self.touched,
        )

    def _place(self, link: Link, header: FrameHeader) -> Placed:
        assert link is self.link
        self.placed.append(Placed(header))
        return self.placed[-1]

    def _asked(self, link: Link, header: FrameHeader) -> None:
        assert link is self.link
        self.asked.append(header)

    def write(self, connection: int = 0) -> None:
        self.link.write(self.link.connections[connection])

    def read(self, connection: int = 0) -> None:
        self.link.read(self.link.connections[connection])

    def receive(self, *frames: FrameHeader, connection: int = 0, payload: bytes = b"") -> None:
        """Let frames arrive, and read them."""
        self.far[connection].send(b"".join(frame.encode() for frame in frames) + payload)
        self.read(connection)

    def wants_write(self) -> list[bool]:
        return [self.link.wants_write(each) for each in self.link.connections]

    def arrived(self, connection: int = 0) -> list[tuple[FrameKind, int]]:
        """The frames at the far end of a connection: kinds and offsets."""
        try:
            read = self.far[connection].recv(1 << 20)
        except BlockingIOError:
            return []
        found = []
        while read:
            header = decode_header(read[:HEADER_BYTES])
            assert read[HEADER_BYTES : HEADER_BYTES + header.length] == bytes([header.offset]) * header.length
            found.append((header.kind, header.offset))
            read = read[HEADER_BYTES + header.length :]
        return found

    def wakes_at(self, connection: int = 0) -> int:
        return self.sockets[connection].getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


@pytest.fixture
def linked() -> Iterator[Callable[..., Linked]]:
    made: list[Linked] = []

    def one(connections: int = 1, unread_bytes: int = 1) -> Linked:
        made.append(Linked(connections, unread_bytes))
        return made[-1]

    yield one
    for each in made:
        for connected in (*each.sockets, *each.far):
            connected.close()


def header(offset: int = 0, length: int = 10, kind: FrameKind = FrameKind.ACTIVATION) -> FrameHeader:
    return FrameHeader(kind, 0, 0, 0, 1 << 20, offset, length)


def chunk(offset: int, source: Source | None = None, kind: FrameKind = FrameKind.ACTIVATION) -> QueuedChunk:
    return QueuedChunk(header(offset, kind=kind), memoryview(bytes([offset]) * 10), source or Source())


A, SEGMENT, CREDIT = FrameKind.ACTIVATION, FrameKind.SEGMENT, FrameKind.CREDIT


def test_the_first_queue_goes_first_and_credits_before_all(linked: Callable[..., Linked]) -> None:
    one = linked(connections=2)
    one.second.resize(5)
    one.second.add(chunk(1, kind=SEGMENT))
    one.first.add(chunk(2))
    one.link.give_credit(SEGMENT, 3)
    one.link.give_credit(SEGMENT, 4)
    assert one.link in one.touched
    for _ in range(3):
        one.write()
    assert one.arrived() == [(CREDIT, 0), (A, 2), (SEGMENT, 1)]
    assert one.wants_write() == [False, False]


def test_several_connections_take_a_frame_each_and_one_alone_takes_four(linked: Callable[..., Linked]) -> None:
    for connections, frames in ((2, 1), (1, 4)):
        one = linked(connections)
        for offset in range(6):
            one.first.add(chunk(offset))
        one.write()
        assert one.arrived() == [(A, offset) for offset in range(frames)]


def test_a_source_knows_when_its_chunk_begins_and_when_the_kernel_has_it(linked: Callable[..., Linked]) -> None:
    one, source = linked(), Source()
    one.first.add(QueuedChunk(header(0, length=1 << 20), memoryview(bytes(1 << 20)), source))
    one.write()
    assert source.happened == ["begun"]
    assert one.wants_write() == [True]
    left = HEADER_BYTES + (1 << 20)
    while left:
        left -= len(one.far[0].recv(1 << 16))
        if source.happened == ["begun"]:
            one.write()
    assert source.happened == ["begun", "accepted"]
    assert one.wants_write() == [False]


def test_each_connection_shuts_down_after_the_last_chunk(linked: Callable[..., Linked]) -> None:
    one = linked(connections=2)
    one.first.add(chunk(1))
    assert not one.link.ending
    one.link.end_own()
    one.link.end()
    one.touched.clear()
    one.link.end()
    assert not one.touched, "it has ended already"
    assert one.link.ending
    for _ in range(4):
        one.write(0)
    one.write(1)
    assert one.arrived(0) == [(A, 1), (FrameKind.LAST_OWN, 0), (FrameKind.SHUTDOWN, 0)]
    assert one.arrived(1) == [(FrameKind.LAST_OWN, 0)]
    assert one.wants_write() == [False, True]
    one.receive(SHUTDOWN, connection=0)
    assert [one.link.done(each) for each in one.link.connections] == [True, False]
    assert not one.link.ended
    one.receive(SHUTDOWN, connection=1)
    assert not one.link.ended
    one.write(1)
    assert one.link.ended


def test_nothing_is_shut_down_while_a_chunk_waits_for_credit(linked: Callable[..., Linked]) -> None:
    one = linked()
    one.second.add(chunk(1, kind=SEGMENT))
    one.link.end()
    assert one.wants_write() == [False]
    one.second.resize(1)
    one.write()
    assert one.arrived() == [(SEGMENT, 1), (FrameKind.SHUTDOWN, 0)]


def test_a_peer_has_ended_its_own_chunks_when_it_says_so_on_every_connection(linked: Callable[..., Linked]) -> None:
    one = linked(connections=2)
    one.receive(LAST_OWN, connection=0)
    assert not one.link.peer_ended_own
    one.receive(SHUTDOWN, connection=1)
    assert one.link.peer_ended_own


def test_credit_lets_chunks_go_and_is_none_of_a_kind_that_nobody_sends(linked: Callable[..., Linked]) -> None:
    one = linked()
    one.second.resize(1)
    for offset in (1, 2):
        one.second.add(chunk(offset, kind=SEGMENT))
    one.write()
    assert one.arrived() == [(SEGMENT, 1)]
    one.touched.clear()
    one.receive(credit(SEGMENT, 1))
    assert one.link in one.touched
    assert one.link.has_frames
    one.write()
    assert one.arrived() == [(SEGMENT, 2)]
    with pytest.raises(FrameError, match="it gives credit for gradients that it never gets"):
        one.receive(credit(FrameKind.GRADIENT, 1))


def test_a_request_goes_before_chunks_and_the_peers_is_handed_over(linked: Callable[..., Linked]) -> None:
    one, asked = linked(), request(FrameKind.GRADIENT, 0, 1, 2)
    one.first.add(chunk(1))
    one.touched.clear()
    one.link.request(asked)
    assert one.link in one.touched
    one.write()
    assert one.arrived() == [(FrameKind.REQUEST, 0), (A, 1)]
    assert one.wants_write() == [False]
    one.receive(asked)
    assert one.asked == [asked]


def test_a_peer_ends_once(linked: Callable[..., Linked]) -> None:
    one, other = linked(), linked()
    one.receive(SHUTDOWN, LAST_OWN)
    with pytest.raises(FrameError, match="a frame after its shutdown"):
        one.read()
    with pytest.raises(FrameError, match="its last own chunk twice"):
        other.receive(LAST_OWN, LAST_OWN)


def test_a_chunk_is_read_into_its_place_and_completed_once_it_is_whole(linked: Callable[..., Linked]) -> None:
    one = linked()
    one.receive(header(7), payload=b"01234")
    assert not one.placed[0].is_complete
    one.far[0].send(b"56789" + header(8).encode() + b"abc")
    one.read()
    assert one.placed[0].is_complete
    assert bytes(one.placed[0].payload) == b"0123456789"
    # The header of the next one is read at once.
    assert [each.header.offset for each in one.placed] == [7, 8]


def test_while_it_is_paused_no_further_chunk_begins(linked: Callable[..., Linked]) -> None:
    one = linked()
    one.receive(header(7), payload=b"01234")
    one.touched.clear()
    one.link.paused = False
    assert one.link not in one.touched
    one.link.paused = True
    assert one.link in one.touched
    one.far[0].send(b"56789" + header(8).encode())
    one.read()
    assert one.placed[0].is_complete
    assert len(one.placed) == 1
    one.link.paused = False
    one.read()
    assert len(one.placed) == 2


@pytest.mark.parametrize(
    ("length", "unread_bytes", "pieces"),
    [
        # Equal pieces of at most what may be unread.
        (64 * 1024, 1 << 20, 64 * 1024),
        (64 * 1024, 64 * 1024, 64 * 1024),
        (64 * 1024, 64 * 1024 - 1, 32 * 1024),
        (100 * 1024, 40 * 1024, 100 * 1024 // 3),
    ],
)
def test_it_wakes_up_for_pieces_of_a_chunk(
    linked: Callable[..., Linked], length: int, unread_bytes: int, pieces: int
) -> None:
    one = linked(unread_bytes=unread_bytes)
    one.receive(header(0, length))
    assert one.wakes_at() == pieces


def test_after_a_chunk_it_wakes_up_for_any_frame(linked: Callable[..., Linked]) -> None:
    one = linked(unread_bytes=1 << 20)
    one.receive(header(0, 64 * 1024))
    one.far[0].send(bytes(64 * 1024))
    one.read()
    assert one.placed[0].is_complete
    assert one.wakes_at() == 1


def test_whole_pieces_are_left_to_be_read_or_none(linked: Callable[..., Linked]) -> None:
    one = linked(unread_bytes=20 * 1024)
    one.receive(header(0, 60 * 1024))
    assert one.wakes_at() == 20 * 1024
    # Of three pieces all have arrived: the first one is read, and two remain to be waited for.
    one.far[0].send(bytes(60 * 1024))
    for left_bytes in (40, 20):
        one.read()
        assert len(one.sockets[0].recv(1 << 20, socket.MSG_PEEK)) == left_bytes * 1024
    one.read()
    assert one.placed[0].is_complete


def test_a_peer_that_closes_without_a_shutdown_is_noticed(linked: Callable[..., Linked]) -> None:
    one = linked()
    one.far[0].close()
    with pytest.raises(EOFError):
        one.read()


Connect = Callable[..., tuple[Connection, socket.socket]]

LARGE_BYTES = 1 << 20


def activation_header(length: int) -> FrameHeader:
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
    assert connection.begin_frame(activation_header(5), memoryview(b"01234"))
    assert not connection.sending
    assert received(far) == activation_header(5).encode() + b"01234"
    assert connection.begin_frame(SHUTDOWN, memoryview(b""))
    assert received(far) == SHUTDOWN.encode()


def test_the_rest_of_a_large_frame_goes_out_when_it_is_pushed(
    connect: Connect,
) -> None:
    connection, far = connect()
    payload = bytes(range(256)) * (LARGE_BYTES // 256)
    assert connection.begin_frame(activation_header(LARGE_BYTES), memoryview(payload))
    assert connection.sending
    got = b""
    while len(got) < HEADER_BYTES + LARGE_BYTES:
        got += received(far)
        if connection.sending:
            connection.push()
    assert got == activation_header(LARGE_BYTES).encode() + payload
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
    assert not connection.begin_frame(activation_header(5), memoryview(b"01234"))
    assert not connection.sending
    while received(far):
        pass
    assert connection.begin_frame(activation_header(5), memoryview(b"01234"))
    assert received(far) == activation_header(5).encode() + b"01234"


def test_a_header_that_comes_in_parts_is_known_when_it_is_whole(
    connect: Connect,
) -> None:
    connection, far = connect()
    encoded = activation_header(5).encode()
    assert connection.read_header() is None
    for part in (encoded[:1], encoded[1:10]):
        far.send(part)
        assert connection.read_header() is None
    far.send(encoded[10:] + b"01234" + SHUTDOWN.encode())
    assert connection.read_header() == activation_header(5)
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
    assert connection.begin_frame(activation_header(5), memoryview(b"01234"))
    assert not connection.sending
    got = b""
    while len(got) < HEADER_BYTES + 5:
        got += received(far)
    assert got == activation_header(5).encode() + bytes(5)
    far.send(activation_header(5).encode() + b"01234")
    while (found := connection.read_header()) is None:
        pass
    assert found == activation_header(5)
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
