"""Measure the goodput of a path by sending a bounded number of bytes, for virtual time.

In virtual time a sending program takes no time. So on a path of 100 Gbit/s, one second has too many bytes, and on an
unlimited path it never ends. iperf3 can count bytes (``--bytes``), but it omits a start only in whole seconds. So the
two ends are sockets of this process in the hosts' namespaces. The kernels do the same work between them as ever, and
one thread that waits only for packets is as fast as two.
"""

import math
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wanbed.ground.socket_owner import accept_own
from wanbed.testbed.kernel.namespace import read_sysctls, write_sysctls
from wanbed.testbed.network.links.wan_link import LinkConditions
from wanbed.testbed.rights import large_buffers_allowed

if TYPE_CHECKING:
    from wanbed.testbed.running_testbed import RunningTestbed

_BUFFERS = ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")


@contextmanager
def namespace_buffers(namespaces: Iterable[str], *, receive_bytes: int, send_bytes: int) -> Iterator[None]:
    """Give sockets that are made in these namespaces during the block buffers of that size, and restore the sysctls."""
    sizes = {name: f"4096 {size} {size}" for name, size in zip(_BUFFERS, (receive_bytes, send_bytes), strict=True)}
    with ExitStack() as restoring:
        for namespace in set(namespaces):
            before = {name: value for name, value in read_sysctls(namespace, _BUFFERS).items() if value is not None}
            restoring.callback(write_sysctls, namespace, before)
            write_sysctls(namespace, sizes)
        yield


_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
BUFFER_MAX_BYTES = 2**30
"""The kernel stores twice the size of a send buffer in 31 bits. TCP windows are limited to this size too."""
_CHUNK_BYTES = 256 * 1024
_PATIENCE_S, _PATIENCE_TIMES, _SLOW_START_ROUNDS = 5.0, 3, 20
"""Limits on waiting for a path far slower than configured; the bytes that arrived until then suffice."""
_TURN_BYTES, _TURNS_TO_FILL = 2**18, 8
_CONNECTING_S, _CONNECTING_ROUNDS = 60.0, 4
_TURN_MIN_S = 1e-4
_DRAINING_ROUNDS, _DRAINING_S = 8, 1.0
_TAKEN_BYTES = 4 * 2**20
_TICK_S = 0.001
_QUIET_NS = 2_000_000_000
_DATAGRAMS_BUFFER_BYTES = 512 * 2**20
"""Socket buffers so large that only the link bounds what waits between two readings or, at the sender, in its queue."""
_DATAGRAMS_S = 0.2
_SPREADS = 100
"""Duration of a measurement over the spread of delays: the delays of the first and last packet hardly matter."""
_BUFFER_MIN_BYTES, _BUFFER_SLOW_BYTES = 256 * 1024, 16 * 1024
_QUEUED_S = 8
"""On a slow link buffers hold no more than this, so that its queue does not outlast TCP's longest timeout, 120 s."""
_BUFFER_UNLIMITED_BYTES = 16 * 2**20
_WARMING_MIN_BYTES = 256 * 1024
_MEASURED_MIN_BYTES, _MEASURED_MAX_BYTES = 8 * 2**20, 64 * 2**20
_RESET = struct.pack("ii", 1, 0)


class StalledError(Exception):
    """Nothing or almost nothing arrived; the message is one line with the two hosts."""


def _longest_ns(ever: Iterable[LinkConditions]) -> int:
    return max(conditions.latency_ns + conditions.impairments.delay_spread_ns for conditions in ever)


@dataclass(frozen=True)
class Ends:
    """The hosts at the two ends of a path."""

    testbed: "RunningTestbed"
    source: str
    destination: str

    def __str__(self) -> str:
        return f"{self.source} to {self.destination}"

    @property
    def rtt_s(self) -> float:
        """The longest RTT of the path between them, as configured, in seconds; that of all times if it changes."""
        topology = self.testbed.topology
        one, other = (topology.host(name).datacenter for name in (self.source, self.destination))
        if one == other:
            return 2 * topology.intra_latency_ns / 1e9
        return sum(_longest_ns(topology.ever(*ends)) for ends in ((one, other), (other, one))) / 1e9

    @property
    def namespaces(self) -> tuple[str, str]:
        """The network namespaces of the two hosts."""
        return self.testbed.namespace(self.source), self.testbed.namespace(self.destination)

    def connect(self, sender: socket.socket, listener: socket.socket) -> None:
        """Connect a socket at the source to one that listens at the destination. Raise OSError on failure."""
        self.testbed.stacks.connect(sender, self.source, self.destination, listener.getsockname()[1])

    def socket(self, host: str, kind: int) -> socket.socket:
        """Open a socket on one of the two hosts, bound to its address."""
        return self.testbed.stacks.open_socket(host, kind)


def tcp_goodput_bps(ends: Ends, connections: int, *, rate_bps: int | None, rtt_s: float, longer: bool = False) -> float:
    """Send over some TCP connections, and return the goodput in bit/s once the path is full.

    ``rate_bps`` (None is unlimited) and ``rtt_s`` are the configured ones. They determine how much to send before and
    during the measurement; ``longer`` sends four times as much during it. Receive buffers have their full size from the
    start, so that autotuning takes no time: together four bandwidth-delay products, of which Linux gives about half to
    the windows. Raise StalledError if nothing arrives, or if a connection breaks.
    """
    if rate_bps is None:
        buffer_bytes, warming_bytes, measured_bytes = _BUFFER_UNLIMITED_BYTES, _MEASURED_MAX_BYTES, _MEASURED_MAX_BYTES
    else:
        path_bytes = math.ceil(rate_bps * rtt_s / 8)
        least_bytes = min(_BUFFER_MIN_BYTES, max(_BUFFER_SLOW_BYTES, int(rate_bps * _QUEUED_S / 8 / connections)))
        buffer_bytes = max(least_bytes, 4 * path_bytes // connections)
        # Slow start takes two bandwidth-delay products.
        warming_bytes = 4 * path_bytes + _WARMING_MIN_BYTES
        measured_bytes = min(_MEASURED_MAX_BYTES, max(_MEASURED_MIN_BYTES, rate_bps // 80))
    turn_bytes = min(_TURN_BYTES, connections * buffer_bytes // _TURNS_TO_FILL)
    if longer:
        measured_bytes *= 4
    ideal_s = 0.0 if rate_bps is None else (warming_bytes + measured_bytes) * 8 / rate_bps
    bps = transfer_bps(
        ends,
        connections,
        buffer_bytes=buffer_bytes,
        warming_bytes=warming_bytes,
        measured_bytes=measured_bytes,
        # Per turn, less arrives than fits the buffers, and more than is worth a system call for each connection.
        turn_s=rtt_s / 32 + (_TURN_MIN_S if rate_bps is None else 8 * turn_bytes / rate_bps),
        patience_s=_PATIENCE_TIMES * (ideal_s + _SLOW_START_ROUNDS * rtt_s) + _PATIENCE_S,
    )
    # Packets still in flight, or in the queue of a slow link, would delay what the next measurement sends first.
    queued_s = 0.0 if rate_bps is None else 8 * connections * buffer_bytes / rate_bps
    time.sleep(_DRAINING_ROUNDS * rtt_s + _DRAINING_S + queued_s)
    return bps


def transfer_bps(
    ends: Ends,
    connections: int,
    *,
    buffer_bytes: int | None,
    warming_bytes: int,
    measured_bytes: int,
    turn_s: float,
    patience_s: float,
) -> float:
    """Send ``warming_bytes``, then ``measured_bytes``, and return the goodput of the latter in bit/s.

    Senders are filled and receivers are read once every ``turn_s``. Buffers have ``buffer_bytes`` from the start; if
    it is None, the kernel tunes them. After ``patience_s`` seconds, use what has arrived until then. Raise StalledError
    if nothing has, or if a connection breaks.
    """
    scratch = bytearray(_TAKEN_BYTES)
    with connected(ends, connections, buffer_bytes) as (senders, receivers), payload_file(_CHUNK_BYTES) as payload:
        arrived, warm_bytes, began_ns = 0, 0, time.monotonic_ns()
        warm_ns = now_ns = began_ns
        while arrived < warming_bytes + measured_bytes and now_ns - began_ns < patience_s * 1e9:
            try:
                for sender in senders:
                    _fill(sender, payload)
                time.sleep(turn_s)
                now_ns = time.monotonic_ns()
                arrived += sum(discard(receiver, scratch) for receiver in receivers)
            except OSError as fault:
                raise StalledError(f"{ends}: the connection broke after {arrived} bytes ({fault.strerror})") from None
            if not warm_bytes and arrived >= warming_bytes:
                warm_ns, warm_bytes = now_ns, arrived
    if not arrived:
        raise StalledError(f"{ends}: nothing arrived in {patience_s:.0f} s")
    return (arrived - warm_bytes) * 8e9 / max(1, now_ns - warm_ns)


@contextmanager
def payload_file(size_bytes: int) -> Iterator[int]:
    """Yield the descriptor of a file in memory, from which ``sendfile`` sends without copying."""
    payload = os.memfd_create("payload")
    try:
        os.ftruncate(payload, size_bytes)
        yield payload
    finally:
        os.close(payload)


def _fill(sender: socket.socket, payload: int) -> None:
    with suppress(BlockingIOError):
        while os.sendfile(sender.fileno(), payload, 0, _CHUNK_BYTES) == _CHUNK_BYTES:
            pass


def discard(receiver: socket.socket, scratch: bytearray) -> int:
    """Receive and discard what has arrived, without copying, and return the number of bytes."""
    try:
        return receiver.recv_into(scratch, _TAKEN_BYTES, socket.MSG_TRUNC)
    except BlockingIOError:
        return 0


@contextmanager
def connected(
    ends: Ends, connections: int, buffer_bytes: int | None
) -> Iterator[tuple[list[socket.socket], list[socket.socket]]]:
    """Open connections between the ends; yield their senders and receivers.

    Buffers have ``buffer_bytes`` from the start, at most ``BUFFER_MAX_BYTES``; if it is None, the kernel tunes them.
    Raise StalledError if a connection cannot be opened.
    """
    if buffer_bytes is not None:
        buffer_bytes = min(BUFFER_MAX_BYTES, buffer_bytes)
    patience_s = _CONNECTING_S + _CONNECTING_ROUNDS * ends.rtt_s
    with ExitStack() as held, ExitStack() as making:
        if buffer_bytes is not None and not large_buffers_allowed() and not ends.testbed.stacks.modelled:
            # The kernel doubles the size that a socket requests, as below, but not a sysctl.
            sizes = {"receive_bytes": buffer_bytes, "send_bytes": 2 * buffer_bytes}
            making.enter_context(namespace_buffers(ends.namespaces, **sizes))
            buffer_bytes = None
        listener = held.enter_context(ends.socket(ends.destination, socket.SOCK_STREAM))
        if buffer_bytes is not None:
            # The kernel doubles the requested size.
            _size(listener, socket.SO_RCVBUF, _SO_RCVBUFFORCE, buffer_bytes // 2)
            ends.testbed.stacks.use_window(buffer_bytes)
        listener.listen(connections)
        listener.settimeout(patience_s)
        senders, receivers = [], []
        for _ in range(connections):
            sender = held.enter_context(ends.socket(ends.source, socket.SOCK_STREAM))
            if buffer_bytes is not None:
                _size(sender, socket.SO_SNDBUF, _SO_SNDBUFFORCE, buffer_bytes)
            sender.settimeout(patience_s)
            try:
                ends.connect(sender, listener)
                receiver = accept_own(listener)
            except OSError as fault:
                raise StalledError(f"{ends}: no connection ({fault}; it may take {patience_s:.0f} s)") from None
            held.enter_context(receiver).setblocking(False)
            sender.setblocking(False)
            # Closing discards unsent bytes, so that the link is free for the next measurement.
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            senders.append(sender)
            receivers.append(receiver)
        making.close()
        yield senders, receivers


def _size(made: socket.socket, option: int, force: int, buffer_bytes: int) -> None:
    """Set the size of a buffer, or the largest that this user may have."""
    try:
        made.setsockopt(socket.SOL_SOCKET, force, buffer_bytes)
    except PermissionError:
        made.setsockopt(socket.SOL_SOCKET, option, buffer_bytes)


def udp_goodput_bps(
    ends: Ends, *, rate_bps: int, offered_bps: int, spread_ns: int, payload_bytes: int, longer: bool = False
) -> float:
    """Offer datagrams of ``payload_bytes`` at ``offered_bps``, and return the goodput in bit/s.

    ``spread_ns`` is the configured deviation of delays; ``longer`` measures four times as long. Raise StalledError if
    too few datagrams arrive.
    """
    duration_s = max(_DATAGRAMS_S, _SPREADS * spread_ns / 1e9) * (4 if longer else 1)
    warming = math.ceil(_WARMING_MIN_BYTES / payload_bytes)
    count = warming + math.ceil(offered_bps * duration_s / 8 / payload_bytes)
    with (
        ends.socket(ends.destination, socket.SOCK_DGRAM) as receiver,
        ends.socket(ends.source, socket.SOCK_DGRAM) as sender,
    ):
        _size(receiver, socket.SO_RCVBUF, _SO_RCVBUFFORCE, _DATAGRAMS_BUFFER_BYTES)
        _size(sender, socket.SO_SNDBUF, _SO_SNDBUFFORCE, _DATAGRAMS_BUFFER_BYTES)
        receiver.setblocking(False)
        sender.connect(receiver.getsockname())
        payload, buffer = bytes(payload_bytes), bytearray(payload_bytes)
        readings: list[tuple[int, int]] = []
        sent, arrived = 0, 0
        began_ns = latest_ns = time.monotonic_ns()
        while sent < count or time.monotonic_ns() - latest_ns < _QUIET_NS:
            now_ns = time.monotonic_ns()
            due = warming + math.ceil(offered_bps * (now_ns - began_ns) / 8e9 / payload_bytes)
            while sent < min(count, due):
                sender.send(payload)
                sent += 1
            if came := _drain(receiver, buffer):
                arrived, latest_ns = arrived + came, now_ns
                readings.append((now_ns, arrived))
            time.sleep(_TICK_S)
    warm = [reading for reading in readings if reading[1] >= warming]
    if len(warm) < 2:
        raise StalledError(f"{ends}: {arrived} of {count} datagrams arrived")
    (first_ns, before), (last_ns, total) = warm[0], warm[-1]
    return (total - before) * payload_bytes * 8e9 / (last_ns - first_ns)


def _drain(receiver: socket.socket, buffer: bytearray) -> int:
    came = 0
    try:
        while True:
            receiver.recv_into(buffer)
            came += 1
    except BlockingIOError:
        return came
