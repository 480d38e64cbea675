import random
import select
import socket
import time
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.transport.event import Closed, Failed, Received, Sent
from wanbed.workloads.transport.frame import CHUNK_BYTES, SHUTDOWN, FrameHeader, FrameKind, credit
from wanbed.workloads.transport.links_config import LinksConfig
from wanbed.workloads.transport.peer import TransportError
from wanbed.workloads.transport.receive_buffers import BufferPool
from wanbed.workloads.transport.striped_transport import StripedTransport

PATIENCE_S = 60


def activation(microbatch: int) -> Message:
    return Message(MessageKind.ACTIVATION, microbatch)


def gradient(microbatch: int) -> Message:
    return Message(MessageKind.GRADIENT, microbatch)


def next_event(end):
    return end.events.get(timeout=PATIENCE_S)


def failure_of(end) -> TransportError:
    while True:
        event = next_event(end)
        if isinstance(event, Failed):
            assert isinstance(event.error, TransportError)
            return event.error


@pytest.mark.parametrize("connections", [1, 3, 8])
@pytest.mark.parametrize("size_bytes", [1, CHUNK_BYTES, 5 * CHUNK_BYTES + 4321])
def test_payloads_arrive_unchanged_both_ways_at_once(join: Callable, connections: int, size_bytes: int) -> None:
    lower, upper = join(connections, size_bytes)
    payloads = {
        message: random.randbytes(size_bytes) for index in range(4) for message in (activation(index), gradient(index))
    }
    for message, payload in payloads.items():
        end = lower if message.kind is MessageKind.ACTIVATION else upper
        end.transport.send(1, message, memoryview(payload))
    for end, kind in ((lower, MessageKind.GRADIENT), (upper, MessageKind.ACTIVATION)):
        events = [next_event(end) for _ in range(8)]
        received = [event for event in events if isinstance(event, Received)]
        assert {event.message: bytes(event.payload) for event in received} == {
            message: payload for message, payload in payloads.items() if message.kind is kind
        }
        sent = sorted((event for event in events if isinstance(event, Sent)), key=lambda event: event.start_ns)
        assert [event.message.microbatch for event in sent] == [0, 1, 2, 3]
        assert all(event.iteration == 1 and event.start_ns <= event.end_ns for event in events)
    for end in (lower, upper):
        end.transport.close()
    for end in (lower, upper):
        assert isinstance(next_event(end), Closed)


def test_a_returned_payload_buffer_is_reused(join: Callable) -> None:
    lower, upper = join(2, 3 * CHUNK_BYTES)
    places = []
    for microbatch in range(3):
        lower.transport.send(0, activation(microbatch), memoryview(random.randbytes(3 * CHUNK_BYTES)))
        event = next_event(upper)
        places.append(event.payload.obj)
        upper.transport.give_back(event.payload)
    assert places[0] is places[1] is places[2]


def test_payloads_that_are_kept_are_not_overwritten(join: Callable) -> None:
    lower, upper = join(2, CHUNK_BYTES)
    sent = [random.randbytes(CHUNK_BYTES) for _ in range(4)]
    for microbatch, payload in enumerate(sent):
        lower.transport.send(0, activation(microbatch), memoryview(payload))
    events = sorted((next_event(upper) for _ in sent), key=lambda event: event.message.microbatch)
    assert [bytes(event.payload) for event in events] == sent


def test_a_stuck_connection_delays_only_its_own_chunk(join_by_hand: Callable) -> None:
    # Rank 1 sends; its peer reads one connection only once the other has brought all but 3 chunks.
    chunks = 64
    size_bytes = chunks * CHUNK_BYTES
    (still, moving), upper = join_by_hand(2, size_bytes)
    upper.transport.send(0, gradient(0), memoryview(bytes(size_bytes)))
    moving.settimeout(PATIENCE_S)
    moved_bytes = 0
    while moved_bytes < (chunks - 3) * (CHUNK_BYTES + len(SHUTDOWN.encode())):
        moved_bytes += len(moving.recv(CHUNK_BYTES))
    while upper.events.empty():
        readable, _, _ = select.select([still, moving], [], [], 0.1)
        for made in readable:
            assert made.recv(CHUNK_BYTES)
    assert isinstance(next_event(upper), Sent)


def test_single_chunks_rotate_over_all_connections(join_by_hand: Callable) -> None:
    size_bytes = 1000
    bare, upper = join_by_hand(4, size_bytes)
    for microbatch in range(8):
        upper.transport.send(0, gradient(microbatch), memoryview(bytes(size_bytes)))
        assert isinstance(next_event(upper), Sent)
    for made in bare:
        made.settimeout(PATIENCE_S)
        expected = 2 * (size_bytes + len(SHUTDOWN.encode()))
        while expected:
            expected -= len(made.recv(expected))
        made.setblocking(False)
        with pytest.raises(BlockingIOError):
            made.recv(1)


def test_a_transport_without_peers_closes_at_once() -> None:
    alone = LinksConfig(0, 0, 0, (), iterations=1)
    events = SimpleQueue()
    transport = StripedTransport(alone, {}, BufferPool(), events.put)
    transport.start()
    transport.close()
    assert isinstance(events.get(timeout=PATIENCE_S), Closed)


def test_shutdown_waits_for_queued_chunks_and_the_peer(join: Callable) -> None:
    lower, upper = join(3, 4 * CHUNK_BYTES)
    lower.transport.send(0, activation(0), memoryview(bytes(4 * CHUNK_BYTES)))
    lower.transport.close()
    assert isinstance(next_event(upper), Received)
    upper.transport.send(0, gradient(0), memoryview(bytes(4 * CHUNK_BYTES)))
    upper.transport.close()
    assert [type(next_event(lower)) for _ in range(3)] == [Sent, Received, Closed]


def test_a_payload_of_the_wrong_size_is_refused(join: Callable) -> None:
    lower, _ = join(1, 100)
    with pytest.raises(ValueError, match=r"rank 1 \(west-0, 127.0.0.1\) expects 100 bytes, not 99"):
        lower.transport.send(0, activation(0), memoryview(bytes(99)))


def test_a_message_that_does_not_exist_is_refused(join: Callable) -> None:
    lower, upper = join(1, 100)
    with pytest.raises(ValueError, match="there is no stage to send an activation to"):
        upper.transport.send(0, activation(0), memoryview(bytes(100)))
    with pytest.raises(ValueError, match="no microbatch 8 in iteration 0"):
        lower.transport.send(0, activation(8), memoryview(bytes(100)))


CHUNK = FrameHeader(FrameKind.ACTIVATION, 0, 0, 0, 100, 0, 100)


@pytest.mark.parametrize(
    ("frames", "fault"),
    [
        (b"GET / HTTP/1.1\r\nHost: rank-1\r\nAccept: */*\r\n\r\n", "it speaks another protocol"),
        (CHUNK.encode()[:-1] + bytes([CHUNK.encode()[-1] ^ 1]) + bytes(100), "the checksum of its header is wrong"),
        (CHUNK._replace(length=101).encode(), "its chunk is inconsistent: 101 bytes at 0 of 100"),
        (CHUNK._replace(length=99).encode(), "99 bytes long: the transfer is not cut there"),
        (CHUNK._replace(owner=1).encode(), "of microbatch 0 of pipeline 1, which is not in this DP-cell"),
        (CHUNK._replace(kind=FrameKind.SEGMENT).encode(), "it sent a segment, but there is no ring"),
        (credit(FrameKind.ACTIVATION, 1).encode(), "it gives credit for activations that it never gets"),
        (CHUNK._replace(kind=FrameKind.GRADIENT).encode(), "of the gradient of microbatch 0, expected are activations"),
        (CHUNK._replace(total_bytes=200, length=200).encode(), "of 200 bytes, expected are 100"),
        (CHUNK._replace(number=8).encode(), "microbatch 8 in iteration 0, which does not exist"),
        (CHUNK._replace(iteration=2).encode(), "microbatch 0 in iteration 2, which does not exist"),
        ((CHUNK.encode() + bytes(100)) * 2, "it sent the chunk at 0 of the activation of microbatch 0 twice"),
        (SHUTDOWN.encode() * 2, "it sent a frame after its shutdown"),
    ],
)
def test_an_invalid_frame_is_reported_with_its_peer(join_by_hand: Callable, frames: bytes, fault: str) -> None:
    (bare,), upper = join_by_hand(1, 100)
    bare.sendall(frames)
    error = str(failure_of(upper))
    assert error.startswith("rank 0 (east-0, 127.0.0.1): ")
    assert fault in error
    assert "\n" not in error


@pytest.mark.parametrize("sent", [b"", CHUNK.encode()[:7], CHUNK.encode() + bytes(60), CHUNK.encode() + bytes(100)])
def test_closing_without_a_shutdown_is_a_failure(join_by_hand: Callable, sent: bytes) -> None:
    (bare,), upper = join_by_hand(1, 100)
    bare.sendall(sent)
    bare.shutdown(socket.SHUT_WR)
    assert str(failure_of(upper)) == "rank 0 (east-0, 127.0.0.1) closed a connection before its shutdown"


def test_a_dead_peer_ends_every_connection_at_once(join_by_hand: Callable) -> None:
    (first, second), upper = join_by_hand(2, 100)
    first.close()
    assert str(failure_of(upper)) == "lost a connection to rank 0 (east-0, 127.0.0.1): Connection reset by peer"
    with pytest.raises(TransportError):
        upper.transport.raise_if_failed()
    second.settimeout(PATIENCE_S)
    with pytest.raises(ConnectionResetError):
        second.recv(1)


def test_closing_before_this_ranks_shutdown_is_a_failure(join_by_hand: Callable) -> None:
    (bare,), upper = join_by_hand(1, 100)
    bare.sendall(SHUTDOWN.encode())
    bare.shutdown(socket.SHUT_WR)
    assert "closed a connection before this rank's shutdown" in str(failure_of(upper))


def test_a_large_payload_is_sent_from_where_it_lies(join_by_hand: Callable) -> None:
    # Changed after it was queued, the payload arrives as changed: nothing was copied when it was queued.
    size_bytes = 64 * CHUNK_BYTES
    (bare,), upper = join_by_hand(1, size_bytes)
    payload = bytearray(size_bytes)
    upper.transport.send(0, gradient(0), memoryview(payload))
    bare.setblocking(True)
    bare.settimeout(PATIENCE_S)
    begun = bare.recv(1)
    payload[-1] = 77
    expected = size_bytes + 64 * len(SHUTDOWN.encode()) - len(begun)
    last = b""
    while expected:
        last = bare.recv(CHUNK_BYTES)
        expected -= len(last)
    assert last[-1] == 77


def test_time_is_measured_on_the_monotonic_clock(join: Callable) -> None:
    before_ns = time.monotonic_ns()
    lower, upper = join(1, 100)
    lower.transport.send(0, activation(0), memoryview(bytes(100)))
    sent, received = next_event(lower), next_event(upper)
    assert before_ns < sent.start_ns <= received.start_ns <= received.end_ns < time.monotonic_ns()
