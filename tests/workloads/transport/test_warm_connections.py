"""Connections that have carried a payload send something before they have been idle for a timeout."""

import select
import socket
from collections.abc import Callable, Iterator

import pytest

from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.transport.frame import HEADER_BYTES, SHUTDOWN, FrameKind, decode_header
from wanbed.workloads.transport.link import Link
from wanbed.workloads.transport.peer import Peer
from wanbed.workloads.transport.warm_connections import KEEP_WARM_NS, WarmConnections

PATIENCE_S = 60
MILLISECOND_NS = 1_000_000


@pytest.fixture
def make_link() -> Iterator[Callable[..., Link]]:
    made: list[socket.socket] = []

    def link(connections: int, *, keep_warm: bool = True) -> Link:
        pairs = [socket.socketpair() for _ in range(connections)]
        made.extend(each for pair in pairs for each in pair)
        return Link(
            Peer(1, "west-0", "127.0.0.1", None, connections, keep_warm=keep_warm),
            [near for near, _ in pairs],
            (),
            window_bytes=None,
            blank=False,
            credit_queues={},
            place=pytest.fail,
            asked=pytest.fail,
            touched={},
        )

    yield link
    for each in made:
        each.close()


def test_a_connection_is_due_once_it_has_sent_nothing_for_a_while(make_link: Callable[..., Link]) -> None:
    link = make_link(3)
    early, late, _never = link.connections
    warm, begin_ns = WarmConnections([link.peer]), 10 * KEEP_WARM_NS
    early.last_sent_ns, late.last_sent_ns = begin_ns, begin_ns + 50 * MILLISECOND_NS

    def due(now_ns: int) -> list[object]:
        found = []
        for _, connection in warm.cooling([link], now_ns):
            assert connection.cooling
            connection.last_sent_ns = now_ns
            found.append(connection)
        assert not any(each.cooling for each in link.connections)
        return found

    assert due(begin_ns + KEEP_WARM_NS) == [early]
    # The thread wakes up for the next one, and does not look again before.
    wait_s = warm.timeout_s(begin_ns + KEEP_WARM_NS)
    assert wait_s == pytest.approx(0.05)
    assert due(begin_ns + KEEP_WARM_NS + 49 * MILLISECOND_NS) == []
    assert due(begin_ns + KEEP_WARM_NS + 50 * MILLISECOND_NS) == [late]


def test_nothing_is_due_where_connections_are_not_kept_or_the_link_ends(make_link: Callable[..., Link]) -> None:
    cold, ending = make_link(1, keep_warm=False), make_link(1)
    ending.end()
    for link in (cold, ending):
        link.connections[0].last_sent_ns = 0
        assert list(WarmConnections([link.peer]).cooling([link], 10 * KEEP_WARM_NS)) == []
    assert WarmConnections([cold.peer]).timeout_s(0) is None


def frames(connected: socket.socket, until: FrameKind, count: int = 1) -> list[FrameKind]:
    """The kinds of the frames that arrive, up to the ``count``-th of the kind ``until``."""
    connected.settimeout(PATIENCE_S)
    kinds: list[FrameKind] = []
    while kinds.count(until) < count:
        header = decode_header(connected.recv(HEADER_BYTES, socket.MSG_WAITALL))
        connected.recv(header.length, socket.MSG_WAITALL)
        kinds.append(header.kind)
    return kinds


def test_a_connection_is_kept_warm_from_its_first_payload_to_its_shutdown(join_by_hand: Callable) -> None:
    connections, end = join_by_hand(2, 1, keep_warm=True)
    end.transport.send(0, Message(MessageKind.GRADIENT, 0), memoryview(b"0"))
    # A transfer of a byte is a chunk of one connection. Which one is not fixed.
    (used,), _, _ = select.select(connections, [], [], PATIENCE_S)
    (unused,) = (each for each in connections if each is not used)
    kinds = frames(used, FrameKind.KEEP_WARM, 3)
    assert kinds == [FrameKind.GRADIENT] + [FrameKind.KEEP_WARM] * 3
    end.transport.close()
    assert frames(used, FrameKind.SHUTDOWN)[-1] is FrameKind.SHUTDOWN
    assert frames(unused, FrameKind.SHUTDOWN) == [FrameKind.SHUTDOWN]
    for each in connections:
        each.sendall(SHUTDOWN.encode())
