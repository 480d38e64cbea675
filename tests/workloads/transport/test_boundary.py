"""Temporal sharing between transports: what is shared arrives whole at its owner, in turns, and faults are told."""

import random
import socket
import threading
from contextlib import suppress
from queue import Empty
from selectors import EVENT_READ, DefaultSelector

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.until import until_within
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.transport.boundary import relay_window
from wanbed.workloads.transport.event import Closed, Failed, Received, Sent
from wanbed.workloads.transport.frame import (
    CHUNK_BYTES,
    HEADER_BYTES,
    SHUTDOWN,
    Cutting,
    FrameHeader,
    FrameKind,
    credit,
    decode_header,
)
from wanbed.workloads.transport.peer import TransportError

PATIENCE_S = 60
ACTIVATION, GRADIENT = MessageKind.ACTIVATION, MessageKind.GRADIENT


def events_until_closed(end) -> list:
    events = []
    while not isinstance(events and events[-1], Closed):
        events.append(end.events.get(timeout=PATIENCE_S))
        if isinstance(events[-1], Failed):
            raise events[-1].error
    return events[:-1]


@st.composite
def traffic(draw: st.DrawFn) -> tuple[dict, list]:
    cell = draw(st.integers(1, 4))
    pipelines = cell * draw(st.integers(1, 2))
    stages, microbatches, iterations = draw(st.integers(2, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    size_bytes = draw(st.integers(1, 12) | st.integers(100_000, 3_000_000))
    turns = draw(st.just([]) | st.permutations([(each, mb) for each in range(cell) for mb in range(microbatches)]))
    sends = [
        (pipeline * stages + stage, iteration, Message(kind, microbatch))
        for pipeline in range(pipelines)
        for stage in range(stages)
        for iteration in range(iterations)
        for microbatch in range(microbatches)
        for kind in (ACTIVATION, GRADIENT)
        if (kind is ACTIVATION and stage < stages - 1) or (kind is GRADIENT and stage > 0)
    ]
    shape = {
        "pipelines": pipelines,
        "stages": stages,
        "cell": draw(st.sampled_from([0, cell])) if not turns else cell,
        "transfer_bytes": size_bytes,
        "turns": turns,
        "microbatches": microbatches,
        "iterations": iterations,
        "connections": draw(st.integers(1, 3)),
    }
    return shape, draw(st.permutations(sends))


def test_a_relay_holds_two_chunks_a_connection_and_two_more() -> None:
    assert [relay_window(connections) for connections in (1, 2, 16)] == [4, 6, 34]


@settings(max_examples=40, deadline=None)
@given(traffic())
def test_every_transfer_arrives_in_any_order_of_offers(mesh: type, given_: tuple) -> None:
    shape, sends = given_
    size_bytes, stages = shape["transfer_bytes"], shape["stages"]
    payloads = {send: random.randbytes(size_bytes) for send in sends}
    expected: dict[int, dict] = {rank: {} for rank in range(shape["pipelines"] * stages)}
    with mesh(**shape) as joined:
        for (rank, iteration, message), payload in payloads.items():
            to = rank + (1 if message.kind is ACTIVATION else -1)
            expected[to][iteration, message] = rank, payload
            joined.ends[rank].transport.send(iteration, message, memoryview(payload))
        for end in joined.ends.values():
            end.transport.close()
        for rank, end in joined.ends.items():
            events = events_until_closed(end)
            received = {
                (event.iteration, event.message): (event.peer.rank, bytes(event.payload))
                for event in events
                if isinstance(event, Received)
            }
            assert received == expected[rank]
            sent = [(rank, event.iteration, event.message) for event in events if isinstance(event, Sent)]
            assert sorted(map(str, sent)) == sorted(str(send) for send in sends if send[0] == rank)


def read_exactly(made: socket.socket, size_bytes: int) -> bytes:
    read = b""
    while len(read) < size_bytes:
        read += made.recv(size_bytes - len(read))
    return read


def readable(sockets: list[socket.socket]) -> list[socket.socket]:
    """Those that have something to read, once one has."""
    with DefaultSelector() as selector:
        for made in sockets:
            selector.register(made, EVENT_READ, made)
        return [key.data for key, _ in selector.select(PATIENCE_S)]


def chunk_from(made: socket.socket, timeout_s: float = PATIENCE_S) -> FrameHeader:
    """The next frame that is no credit."""
    while (header := frame_of(made, timeout_s)).kind is FrameKind.CREDIT:
        pass
    return header


def frame_of(made: socket.socket, timeout_s: float = PATIENCE_S) -> FrameHeader:
    """The header of the next frame; its payload is read and left out."""
    made.settimeout(timeout_s)
    header = decode_header(read_exactly(made, HEADER_BYTES))
    made.settimeout(PATIENCE_S)
    read_exactly(made, header.length)
    return header


@pytest.mark.parametrize("seed", range(4))
def test_each_link_sends_transfers_in_turn_iteration_by_iteration(mesh: type, seed: int) -> None:
    # Ranks 1, 3 and 5 (stage 1) are played by the test, which reads what the links of 0, 2 and 4 carry.
    generator = random.Random(seed)
    turns = [(pipeline, microbatch) for pipeline in range(3) for microbatch in range(2)]
    generator.shuffle(turns)
    size_bytes = 900_000
    shape = {"turns": turns, "microbatches": 2, "iterations": 2, "connections": 1, "by_hand": (1, 3, 5)}
    with mesh(3, 2, 3, size_bytes, **shape) as joined:
        sends = [(pipeline, iteration, mb) for pipeline in range(3) for iteration in range(2) for mb in range(2)]
        generator.shuffle(sends)
        for pipeline, iteration, microbatch in sends:
            message = Message(ACTIVATION, microbatch)
            joined.ends[2 * pipeline].transport.send(iteration, message, memoryview(bytes(size_bytes)))
        cutting = Cutting(size_bytes, 3)
        order = [(iteration, *turn) for iteration in range(2) for turn in turns for _ in cutting.chunks_of(0)]
        for pipeline in range(3):
            (bare,) = joined.bare[2 * pipeline + 1][2 * pipeline]
            headers = [frame_of(bare) for _ in order]
            assert [(header.iteration, header.owner, header.number) for header in headers] == order
            offsets = {cutting.chunk(index)[0] for index in cutting.chunks_of(pipeline)}
            assert {header.offset for header in headers} == offsets


def test_a_missing_transfer_holds_back_later_turns(mesh: type) -> None:
    with mesh(2, 2, 2, 100, turns=[(0, 0), (1, 0)], connections=1, by_hand=(1, 3)) as joined:
        joined.ends[2].transport.send(0, Message(ACTIVATION, 0), memoryview(bytes(100)))
        bares = [joined.bare[2 * pipeline + 1][2 * pipeline][0] for pipeline in range(2)]
        for bare in bares:
            bare.settimeout(0.2)
            with pytest.raises(TimeoutError):
                bare.recv(1)
        joined.ends[0].transport.send(0, Message(ACTIVATION, 0), memoryview(bytes(100)))
        for bare in bares:
            assert [frame_of(bare).owner for _ in range(2)] == [0, 1]


def test_a_relay_is_sent_no_more_chunks_than_it_gives_credit_for(mesh: type) -> None:
    # Pipeline 0 has the turn and sends nothing, so what pipeline 1 sends piles up at the relay, rank 0.
    turns = [(0, 0), (0, 1), (1, 0), (1, 1)]
    size_bytes = 20_000_000
    with mesh(2, 2, 2, size_bytes, turns=turns, microbatches=2, connections=1, by_hand=(0, 1)) as joined:
        for microbatch in range(2):
            joined.ends[2].transport.send(0, Message(ACTIVATION, microbatch), memoryview(bytes(size_bytes)))
        (bare,) = joined.bare[0][2]
        with pytest.raises(TimeoutError):
            chunk_from(bare, 0.3)
        bare.sendall(credit(FrameKind.ACTIVATION, 7).encode())
        for _ in range(7):
            assert chunk_from(bare).kind is FrameKind.ACTIVATION
        with pytest.raises(TimeoutError):
            chunk_from(bare, 0.3)
        bare.sendall(credit(FrameKind.ACTIVATION, 5).encode())
        for _ in range(5):
            chunk_from(bare)
        with pytest.raises(TimeoutError):
            chunk_from(bare, 0.3)


@pytest.mark.parametrize("connections", [1, 3])
def test_a_relay_gives_credit_for_its_window_then_for_sent_chunks(mesh: type, connections: int) -> None:
    # The relay is rank 0; the mate, rank 2, is played, and so is rank 1, which takes what is relayed.
    size_bytes = 64 * CHUNK_BYTES
    window = relay_window(connections)
    with mesh(2, 2, 2, size_bytes, connections=connections, by_hand=(1, 2)) as joined:
        mates = joined.bare[2][0]
        credits_given = [frame_of(made) for made in readable(mates)]
        assert credits_given == [credit(FrameKind.ACTIVATION, window)]
        chunk = FrameHeader(FrameKind.ACTIVATION, 1, 0, 0, size_bytes, 0, CHUNK_BYTES)
        mates[0].settimeout(PATIENCE_S)
        mates[0].sendall(chunk.encode() + bytes(CHUNK_BYTES))
        (relayed,) = readable(joined.bare[1][0])
        assert frame_of(relayed) == chunk


def test_a_gradient_is_not_held_up_by_activations_whose_turn_has_not_come(mesh: type) -> None:
    # At stage 1 of 3, pipeline 1's activations fill rank 1's window while pipeline 0's turn has not come.
    size_bytes = 20_000_000
    with mesh(2, 3, 2, size_bytes, turns=[(0, 0), (1, 0)], connections=1) as joined:
        joined.ends[4].transport.send(0, Message(ACTIVATION, 0), memoryview(bytes(size_bytes)))
        joined.ends[1].transport.send(0, Message(GRADIENT, 0), memoryview(bytes(size_bytes)))
        joined.ends[4].transport.send(0, Message(GRADIENT, 0), memoryview(bytes(size_bytes)))
        for rank in (0, 3):
            assert isinstance(event := joined.ends[rank].events.get(timeout=PATIENCE_S), Received)
            assert event.message == Message(GRADIENT, 0)


def test_a_relay_stops_reading_when_a_cell_mate_does_not(mesh: type) -> None:
    # The relay is rank 1; the test plays rank 0, which sends, and its mate, rank 3, which at first takes nothing.
    size_bytes = 80 * CHUNK_BYTES
    with mesh(2, 2, 2, size_bytes, connections=1, by_hand=(0, 3)) as joined:
        (across,), (mate,) = joined.bare[0][1], joined.bare[3][1]
        offsets = [index * CHUNK_BYTES for index in range(0, 80, 2)]
        across.settimeout(PATIENCE_S)
        sent = []

        def send() -> None:
            for offset in offsets:
                header = FrameHeader(FrameKind.ACTIVATION, 1, 0, 0, size_bytes, offset, CHUNK_BYTES)
                across.sendall(header.encode() + bytes(CHUNK_BYTES))
                sent.append(offset)

        thread = threading.Thread(target=send)
        thread.start()
        until_within(PATIENCE_S, lambda: len(sent) >= 31)
        thread.join(0.5)
        # The last that it has room for is begun, and maybe no more than that, when it stops.
        assert len(sent) <= 36
        assert [chunk_from(mate).offset for _ in offsets] == offsets
        thread.join()
        assert sent == offsets


def test_chunks_that_are_still_arriving_over_many_connections_hold_up_nothing(mesh: type) -> None:
    # Each connection has begun a chunk to pass on: were they counted, the relay would stop reading all of them.
    connections = 40
    size_bytes = 2 * connections * CHUNK_BYTES
    with mesh(2, 2, 2, size_bytes, connections=connections, by_hand=(0, 3)) as joined:
        across, mates = joined.bare[0][1], joined.bare[3][1]
        offsets = [2 * each * CHUNK_BYTES for each in range(connections)]
        for made, offset in zip(across, offsets, strict=True):
            made.setblocking(True)
            header = FrameHeader(FrameKind.ACTIVATION, 1, 0, 0, size_bytes, offset, CHUNK_BYTES)
            made.sendall(header.encode() + bytes(CHUNK_BYTES // 2))

        def send() -> None:
            for made in across:
                made.sendall(bytes(CHUNK_BYTES - CHUNK_BYTES // 2))

        thread = threading.Thread(target=send)
        thread.start()
        arrived: list[int] = []
        while len(arrived) < connections:
            frames = [frame_of(made) for made in readable(mates)]
            arrived += [frame.offset for frame in frames if frame.kind is not FrameKind.CREDIT]
        thread.join()
        assert sorted(arrived) == offsets


def test_a_rank_shuts_down_after_all_relayed_chunks_are_sent(mesh: type) -> None:
    size_bytes = 5_000_000
    payload = random.randbytes(size_bytes)
    with mesh(3, 2, 3, size_bytes) as joined:
        for rank in (2, 3, 4, 5, 1):
            joined.ends[rank].transport.close()
        with pytest.raises(Empty):
            joined.ends[2].events.get(timeout=0.2)
        joined.ends[0].transport.send(0, Message(ACTIVATION, 0), memoryview(payload))
        joined.ends[0].transport.close()
        (received,) = events_until_closed(joined.ends[1])
        assert bytes(received.payload) == payload
        for rank in (2, 3, 4, 5):
            assert events_until_closed(joined.ends[rank]) == []


@pytest.mark.parametrize("lost", range(6))
def test_every_rank_reports_a_lost_rank(mesh: type, lost: int) -> None:
    with mesh(3, 2, 3, 5_000_000, by_hand=(lost,)) as joined:
        for rank, end in joined.ends.items():
            kind = ACTIVATION if rank % 2 == 0 else GRADIENT
            end.transport.send(0, Message(kind, 0), memoryview(bytes(5_000_000)))
        for made in (made for sockets in joined.bare[lost].values() for made in sockets):
            made.close()
        for end in joined.ends.values():
            with pytest.raises(TransportError, match=r"^(lost a connection to )?rank \d \(host-\d, 127\.0\.0\.1\)"):
                events_until_closed(end)


# The cell's ranks at stage 0 are 0, 2 and 4, played are 2 (a mate of 0) and 1 (across the boundary). 900,000 bytes
# are cut into chunks of 18,750, dealt round: the one at 0 belongs to pipeline 0, the one at 18,750 to pipeline 1.
CHUNK = FrameHeader(FrameKind.ACTIVATION, 1, 0, 0, 900_000, 0, 18_750)


@pytest.mark.parametrize(
    ("sender", "frames", "fault"),
    [
        (2, [CHUNK._replace(offset=18_750)], "which goes over another node pair"),
        (2, [CHUNK._replace(owner=2)], "of pipeline 2, which does not go over this link"),
        (2, [CHUNK._replace(owner=0)], "of pipeline 0, which does not go over this link"),
        (2, [CHUNK._replace(kind=FrameKind.GRADIENT)], "of pipeline 1, which does not go over this link"),
        (2, [CHUNK._replace(offset=1)], "the transfer is not cut there"),
        (2, [CHUNK._replace(total_bytes=900_001)], "of 900001 bytes, expected are 900000"),
        (2, [CHUNK._replace(number=1)], "in iteration 0, which does not exist"),
        (2, [credit(FrameKind.ACTIVATION, 1)] * 2, "credit for 1 chunks more than it was sent"),
        (2, [FrameHeader(FrameKind.LAST_OWN, 0, 0, 0, 0, 0, 0)] * 2, "its last own chunk twice"),
        (2, [FrameHeader(FrameKind.LAST_OWN, 0, 0, 0, 0, 0, 0), CHUNK], "a chunk of its own after its last one"),
        (2, [SHUTDOWN, CHUNK], "a frame after its shutdown"),
        (1, [CHUNK], "expected are gradients"),
        (1, [CHUNK._replace(kind=FrameKind.GRADIENT, owner=3)], "of pipeline 3, which is not in this DP-cell"),
        (1, [CHUNK._replace(kind=FrameKind.GRADIENT, offset=18_750)], "which goes over another node pair"),
        (1, [CHUNK._replace(kind=FrameKind.SEGMENT)], "but is not the previous rank in the ring"),
        (4, [CHUNK._replace(kind=FrameKind.SEGMENT, number=4)], "ring step 4 in all-reduce 0, which does not exist"),
        (4, [CHUNK._replace(kind=FrameKind.SEGMENT, iteration=1)], "ring step 0 in all-reduce 1, which does not exist"),
    ],
)
def test_an_invalid_frame_is_reported_with_its_peer(
    mesh: type, sender: int, frames: list[FrameHeader], fault: str
) -> None:
    with mesh(3, 2, 3, 900_000, connections=1, by_hand=(1, 2, 4)) as joined:
        (bare,) = joined.bare[sender][0]
        bare.setblocking(True)
        for frame in frames:
            bare.sendall(frame.encode())
        with pytest.raises(TransportError) as failure:
            events_until_closed(joined.ends[0])
        assert str(failure.value).startswith(f"rank {sender} (host-{sender}, 127.0.0.1): ")
        assert fault in str(failure.value)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_sequence_of_frames_is_handled_or_reported(mesh: type, data: st.DataObject) -> None:
    numbers = st.integers(0, 3)
    frame = st.builds(
        FrameHeader,
        st.sampled_from(FrameKind),
        numbers,
        numbers,
        numbers,
        st.sampled_from([0, 1, 900_000]),
        st.sampled_from([0, 1, 18_750, 37_500]),
        st.sampled_from([0, 18_750]),
    )
    with mesh(3, 2, 3, 900_000, connections=1, by_hand=(1, 2, 4)) as joined:
        end = joined.ends[0]
        for sender in (1, 2, 4):
            made = joined.bare[sender][0][0]
            # The transport may have failed already, over what came from another.
            with suppress(OSError):
                for header in data.draw(st.lists(frame, max_size=4)):
                    made.send(header.encode() + bytes(header.length))
                made.shutdown(socket.SHUT_WR)
        event = end.events.get(timeout=PATIENCE_S)
        assert isinstance(event, Failed)
        assert isinstance(event.error, TransportError)
        assert "rank " in str(event.error)
