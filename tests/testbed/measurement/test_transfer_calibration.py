import fcntl
import resource
import socket
import threading
import time
from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.ground.strict_model import parse_model
from wanbed.testbed.measurement.bounded_transfer import Ends, StalledError
from wanbed.testbed.measurement.transfer_calibration import (
    TimedConnection,
    filling_pairs,
    spread_pairs,
    together_bytes,
    transfers_s,
    windows_bytes,
)
from wanbed.testbed.network.links.wan_link import LinkConditions
from wanbed.testbed.network.topology import Datacenter, Host, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec

SIZES = st.integers(1, 12)


def datacenter(name: str, hosts: int) -> Datacenter:
    return Datacenter(name, 0, tuple(Host(f"{name}{index}", name, index, 1) for index in range(hosts)))


@given(SIZES, SIZES)
def test_every_pair_is_listed_once_and_the_first_ones_are_on_different_hosts(here: int, there: int) -> None:
    sources, destinations = ([f"{name}{index}" for index in range(size)] for name, size in (("e", here), ("w", there)))
    pairs = spread_pairs(sources, destinations)
    assert sorted(pairs) == sorted(product(sources, destinations))
    first = pairs[: min(here, there)]
    assert len({source for source, _ in first}) == len({destination for _, destination in first}) == len(first)


@pytest.mark.parametrize(
    ("hosts", "trunk_bps", "pair_bps", "port_bps", "count"),
    [
        ((2, 2), 100, None, None, 2),
        ((2, 2), None, 100, None, 0),
        ((1, 1), 100, None, None, 0),
        ((2, 3), 100, 30, None, 4),
        # Two ports of half the trunk: of three pairs two share one, of four each has two. And of less.
        ((2, 2), 100, 50, 50, 4),
        ((2, 2), 100, 60, 50, 2),
        ((2, 2), 100, 60, 49, 0),
        # Two pairs at one port get a trunk's rate through it only if it has that.
        ((2, 1), 100, 60, 100, 2),
        ((2, 1), 100, 60, 99, 0),
    ],
)
def test_pairs_fill_a_trunk_where_ports_leave_each_its_share(
    hosts: tuple[int, int], trunk_bps: int | None, pair_bps: int | None, port_bps: int | None, count: int
) -> None:
    conditions = LinkConditions(rate_bps=trunk_bps, node_pair_rate_bps=pair_bps)
    found = filling_pairs(datacenter("e", hosts[0]), datacenter("w", hosts[1]), conditions, port_bps)
    assert len(found) == count


def test_buffers_end_where_windows_end_and_the_flight_with_them() -> None:
    # 100 Gbit/s over 80 ms hold 1 GB.
    flight_bytes, buffer_bytes = windows_bytes(2**24, 100 * 10**9, 0.08)
    assert 3 * flight_bytes == buffer_bytes <= 2**30
    assert flight_bytes > 2**28


def test_a_line_that_holds_less_has_three_times_that_for_its_buffers() -> None:
    assert windows_bytes(2**16, 10**9, 0.08) == (10_000_000, 30_000_000)


@given(st.integers(1, 10**15), st.integers(1, 2**30))
def test_trunk_transfer_is_many_grains_or_not_measured(trunk_bps: int, grain_bytes: int) -> None:
    total_bytes = together_bytes(trunk_bps, 2**14, grain_bytes)
    if total_bytes is None:
        assert 8 * 100 * grain_bytes > 4 * trunk_bps
    else:
        assert total_bytes >= 100 * grain_bytes


RATE_BPS = 10**9
DESCRIPTORS_OF_SELECT = 1024
DOCUMENT = {"datacenters": [{"name": name, "hosts": 1} for name in ("east", "west")], "wan": {"latency": "0ms"}}
TESTBED = SimpleNamespace(mtu_bytes=1500, topology=resolve_topology(parse_model(TopologySpec, DOCUMENT, "test")))


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
