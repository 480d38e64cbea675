import select
import selectors
import socket
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wanbed.workloads.serving.frame_channel import (
    LARGEST_KEPT_BYTES,
    PAYLOAD,
    Document,
    FrameChannel,
    PeerChannel,
    PreciseTimer,
    dispatch,
)
from wanbed.workloads.transport.frame import FrameError

Pair = tuple[FrameChannel, FrameChannel]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, other = socket.socketpair()
    ends = FrameChannel(one), FrameChannel(other)
    yield ends
    for end in ends:
        end.close()


def moved(sender: FrameChannel, receiver: FrameChannel) -> list[Document]:
    """Send and receive everything, and return all documents that arrive."""
    found = []
    while True:
        sender.flush()
        found += receiver.receive()
        if not sender.unsent:
            return found + receiver.receive()


frames = st.lists(
    st.tuples(st.dictionaries(st.text(), st.integers() | st.text(), max_size=4), st.integers(0, 2_000_000)), max_size=8
)


@settings(max_examples=30, deadline=None)
@given(frames)
def test_frames_arrive_whole_and_in_order_with_every_byte_of_their_payloads(
    frames: list[tuple[Document, int]],
) -> None:
    one, other = socket.socketpair()
    with one, other:
        sender, receiver = FrameChannel(one), FrameChannel(other)
        for document, payload_bytes in frames:
            sender.send(document, payload_bytes)
        assert moved(sender, receiver) == [document for document, _ in frames]
        assert sender.sent_bytes == receiver.received_bytes == sum(size for _, size in frames)


def test_a_document_is_there_only_once_its_payload_is(pair: Pair) -> None:
    sender, receiver = pair
    sender.send({"part": 1}, 50_000_000)
    sender.flush()
    assert sender.unsent
    assert receiver.receive() == []
    assert moved(sender, receiver) == [{"part": 1}]


def test_what_waits_to_be_sent_takes_no_memory_of_its_size(pair: Pair) -> None:
    sender, _ = pair
    for _ in range(100):
        sender.send({"part": 1}, 1 << 40)
    sender.flush()
    assert sender.unsent
    assert sender.sent_bytes < 1 << 24


def test_a_peer_that_closed_is_reported_after_what_it_sent(pair: Pair) -> None:
    sender, receiver = pair
    sender.send({"last": True}, 10)
    sender.flush()
    sender.close()
    assert receiver.receive() == [{"last": True}]
    with pytest.raises(ConnectionResetError, match="closed the connection"):
        receiver.receive()


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (b"GET / HTTP/1.1\r\n\r\n" + bytes(40), "another protocol"),
        (b"wbS1" + (1 << 30).to_bytes(4, "big") + bytes(40), "document of 1073741824 bytes"),
        (b"wbS1" + (2).to_bytes(4, "big") + bytes(12) + b"{}", "checksum"),
    ],
)
def test_what_is_no_frame_is_refused(pair: Pair, sent: bytes, fault: str) -> None:
    sender, receiver = pair
    sender.connection.send(sent)
    with pytest.raises(FrameError, match=fault):
        receiver.receive()


@pytest.fixture
def keeping() -> Iterator[Pair]:
    one, other = socket.socketpair()
    ends = FrameChannel(one), FrameChannel(other, keeps_payloads=True)
    yield ends
    for end in ends:
        end.close()


@settings(max_examples=20, deadline=None)
@given(st.lists(st.binary(max_size=400_000), max_size=6))
def test_bytes_that_were_computed_arrive_as_they_are(payloads: list[bytes]) -> None:
    one, other = socket.socketpair()
    with one, other:
        sender, receiver = FrameChannel(one), FrameChannel(other, keeps_payloads=True)
        sender.send({"hello": True})
        for number, payload in enumerate(payloads):
            sender.send({"part": number}, memoryview(payload))
        hello, *found = moved(sender, receiver)
        assert hello == {"hello": True}
        assert [each["part"] for each in found] == list(range(len(payloads)))
        assert [bytes(each.get(PAYLOAD, b"")) for each in found] == payloads
        assert sender.sent_bytes == receiver.received_bytes == sum(map(len, payloads))


def test_bytes_that_change_on_their_way_are_refused(keeping: Pair) -> None:
    sender, receiver = keeping
    sender.send({"hello": True})
    payload = bytearray(b"tensor")
    sender.send({"part": 1}, memoryview(payload))
    payload[0] ^= 1
    with pytest.raises(FrameError, match="checksum of its payload"):
        moved(sender, receiver)


def test_no_payload_is_kept_before_the_hello(keeping: Pair) -> None:
    sender, receiver = keeping
    sender.send({"hello": True}, memoryview(b"tensor"))
    with pytest.raises(FrameError, match="brings 6 bytes where none are expected"):
        moved(sender, receiver)


def test_a_payload_beyond_the_bound_is_refused_before_it_comes(keeping: Pair) -> None:
    sender, receiver = keeping
    sender.send({"hello": True})
    sender.send({"part": 1}, LARGEST_KEPT_BYTES + 1)
    with pytest.raises(FrameError, match="where none are expected"):
        moved(sender, receiver)


@pytest.fixture
def selector() -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as made:
        yield made


def ready_socket() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.send(b"x")
    return ours, theirs


def test_what_a_peer_sent_before_its_end_is_handled_though_writing_to_it_fails(
    selector: selectors.BaseSelector,
) -> None:
    near, far = socket.socketpair()
    peer = FrameChannel(far)
    handled: list[Document] = []
    ends: list[str] = []
    own = PeerChannel(selector, FrameChannel(near), handled.append, ends.append)
    peer.send({"last": True})
    peer.flush()
    peer.close()
    own.send({"to": "nobody"})
    assert ends == []
    while own.here:
        dispatch(selector, 1.0)
    assert handled == [{"last": True}]
    assert ends == ["the peer has closed the connection"]


def test_a_channel_that_another_one_closed_in_the_same_round_is_left_out(selector: selectors.BaseSelector) -> None:
    pairs = [ready_socket(), ready_socket()]
    called: list[int] = []

    def closing_the_other(number: int) -> None:
        called.append(number)
        other = pairs[1 - number][0]
        selector.unregister(other)
        other.close()

    for number, (ours, _) in enumerate(pairs):
        selector.register(ours, selectors.EVENT_READ, lambda _, number=number: closing_the_other(number))
    dispatch(selector, 1)
    assert len(called) == 1


def test_a_new_channel_with_the_descriptor_of_a_closed_one_is_not_called_in_its_place(
    selector: selectors.BaseSelector,
) -> None:
    pairs = [ready_socket(), ready_socket()]
    called: list[str] = []

    def replacing_the_other(number: int) -> None:
        called.append("first")
        other = pairs[1 - number][0]
        descriptor = other.fileno()
        selector.unregister(other)
        other.close()
        new = ready_socket()
        pairs.append(new)
        assert new[0].fileno() == descriptor
        selector.register(new[0], selectors.EVENT_READ, lambda _: called.append("new"))

    for number, (ours, _) in enumerate(pairs[:2]):
        selector.register(ours, selectors.EVENT_READ, lambda _, number=number: replacing_the_other(number))
    dispatch(selector, 1)
    assert called == ["first"]


@pytest.fixture
def timer() -> Iterator[PreciseTimer]:
    made = PreciseTimer()
    yield made
    made.close()


def woken(timer: PreciseTimer, within_s: float) -> bool:
    return bool(select.select([timer], [], [], within_s)[0])


def test_it_never_wakes_before_the_moment(timer: PreciseTimer) -> None:
    at_ns = time.monotonic_ns() + 5_000_000
    timer.set(at_ns)
    assert woken(timer, 5)
    assert time.monotonic_ns() >= at_ns


def test_a_moment_that_is_over_wakes_at_once_and_only_once(timer: PreciseTimer) -> None:
    timer.set(0)
    assert woken(timer, 5)
    timer.passed()
    assert not woken(timer, 0)


def test_the_last_setting_holds(timer: PreciseTimer) -> None:
    timer.set(0)
    timer.set(time.monotonic_ns() + 3_600 * 10**9)
    assert not woken(timer, 0.02)


def test_unset_it_does_not_wake(timer: PreciseTimer) -> None:
    timer.passed()
    assert not woken(timer, 0)
