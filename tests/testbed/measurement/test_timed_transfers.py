import fcntl
import resource
import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from wanbed.ground.strict_model import parse_model
from wanbed.testbed.measurement.bounded_transfer import Ends, StalledError
from wanbed.testbed.measurement.timed_transfers import TimedConnection, transfers_s
from wanbed.testbed.network.topology import resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec

RATE_BPS = 10**9
DESCRIPTORS_OF_SELECT = 1024
DOCUMENT = {"datacenters": [{"name": name, "hosts": 1} for name in ("east", "west")], "wan": {"latency": "0ms"}}
TESTBED = SimpleNamespace(topology=resolve_topology(parse_model(TopologySpec, DOCUMENT, "test")))


@pytest.fixture
def connection() -> Iterator[TimedConnection]:
    """A pair of sockets of this process."""
    sender, receiver = socket.socketpair()
    with sender, receiver:
        yield made(sender, receiver)


def made(sender: socket.socket, receiver: socket.socket) -> TimedConnection:
    for end in (sender, receiver):
        end.setblocking(False)
    return TimedConnection(Ends(cast("Any", TESTBED), "east-0", "west-0"), sender, receiver)


def test_a_transfer_ends_with_its_last_byte(connection: TimedConnection) -> None:
    for size_bytes in (2**20, 10):
        before_s = time.monotonic()
        (took_s,) = transfers_s([connection], size_bytes, RATE_BPS)
        assert 0 < took_s <= time.monotonic() - before_s
        with pytest.raises(BlockingIOError):
            connection.receiver.recv(1)


def test_descriptors_may_have_any_number(connection: TimedConnection) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * DESCRIPTORS_OF_SELECT), hard))
    try:
        ends = [
            socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD, DESCRIPTORS_OF_SELECT))
            for end in (connection.sender, connection.receiver)
        ]
        with ends[0], ends[1]:
            assert transfers_s([made(*ends)], 2**20, RATE_BPS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_connection_that_is_closed_is_not_waited_for(connection: TimedConnection) -> None:
    connection.sender.shutdown(socket.SHUT_WR)
    with pytest.raises(StalledError, match=r"east-0 to west-0: .* while 10 bytes were missing"):
        transfers_s([connection], 10, RATE_BPS)


def test_a_reader_sees_the_end_of_what_was_sent(connection: TimedConnection) -> None:
    connection.begin(10)
    connection.sender.shutdown(socket.SHUT_WR)
    with pytest.raises(StalledError, match="the connection was closed while 10 bytes were missing"):
        connection.receive()


def test_silence_is_not_waited_for_longer_than_patience(connection: TimedConnection) -> None:
    connection.send = lambda payload: False  # type: ignore[method-assign]
    with pytest.raises(StalledError, match="nothing arrived in 0 s"):
        transfers_s([connection], 10, 8, patience_s=0.01)


def test_transfer_far_slower_than_configured_is_given_up(connection: TimedConnection) -> None:
    done = threading.Event()

    def dribble() -> None:
        while not done.wait(0.001):
            connection.sender.send(b"x")

    connection.send = lambda payload: False  # type: ignore[method-assign]
    sender = threading.Thread(target=dribble)
    sender.start()
    try:
        with pytest.raises(StalledError, match="east-0 to west-0"):
            transfers_s([connection], 10**6, 10**9, patience_s=0.2)
    finally:
        done.set()
        sender.join()
