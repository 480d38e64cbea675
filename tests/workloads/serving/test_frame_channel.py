import socket
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wanbed.workloads.serving.frame_channel import LARGEST_KEPT_BYTES, PAYLOAD, Document, FrameChannel
from wanbed.workloads.transport.frames.frame import FrameError

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
