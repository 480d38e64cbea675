"""Time transfers to the arrival of their last byte, one alone or several at once, on either clock.

Both ends are sockets of this process in the hosts' namespaces. One thread sends, receives, and waits for packets with a
selector. So it notices their arrival within the time of a system call.
"""

import math
import os
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from wanbed.testbed.measurement.bounded_transfer import SEGMENT_BYTES, Ends, StalledError, connected, payload_file
from wanbed.testbed.network.shared_rate import FRAME_BYTES

PATIENCE_S = 60.0
_PATIENCE_TIMES, _ROUNDS = 10, 20
"""Limit of a transfer: this multiple of its time at the path's rate, and this many round trips for slow start."""
_CHUNK_BYTES = 4 * 2**20
_SLOW_START_TIMES = 4
_SCRATCH = bytearray(4 * 2**20)


def wire_bytes(size_bytes: int) -> int:
    """Return the wire bytes, Ethernet headers included, of a transfer in full segments."""
    return size_bytes + (FRAME_BYTES - SEGMENT_BYTES) * math.ceil(size_bytes / SEGMENT_BYTES)


@dataclass
class TimedConnection:
    """One TCP connection between two hosts, for one transfer after the other."""

    ends: Ends
    sender: socket.socket
    receiver: socket.socket
    _unsent: int = field(default=0, init=False)
    _missing: int = field(default=0, init=False)

    def begin(self, size_bytes: int) -> None:
        """Begin a transfer of that size."""
        self._unsent = self._missing = size_bytes

    def send(self, payload: int) -> bool:
        """Send as much as the kernel accepts, and return whether something is left to send.

        Raise StalledError if the connection is broken.
        """
        try:
            while self._unsent:
                self._unsent -= os.sendfile(self.sender.fileno(), payload, 0, min(_CHUNK_BYTES, self._unsent))
        except BlockingIOError:
            pass
        except OSError as fault:
            raise self._broken(str(fault)) from None
        return self._unsent > 0

    def receive(self) -> bool:
        """Receive what has arrived, after a selector reported data, and return whether something is missing.

        Raise StalledError if the connection is broken or closed.
        """
        try:
            taken = self.receiver.recv_into(_SCRATCH, len(_SCRATCH), socket.MSG_TRUNC)
        except BlockingIOError:
            return True
        except OSError as fault:
            raise self._broken(str(fault)) from None
        if not taken:
            raise self._broken("the connection was closed")
        self._missing -= taken
        return self._missing > 0

    def _broken(self, reason: str) -> StalledError:
        return StalledError(f"{self.ends}: {reason} while {self._missing} bytes were missing")


@contextmanager
def open_connection(ends: Ends, buffer_bytes: int) -> Iterator[TimedConnection]:
    """Open a connection whose buffers at both ends have that size from the start."""
    with connected(ends, 1, buffer_bytes) as ((sender,), (receiver,)):
        # The last partial segment does not wait for an acknowledgement.
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield TimedConnection(ends, sender, receiver)


def transfers_s(
    connections: Sequence[TimedConnection],
    size_bytes: int | Sequence[int],
    rate_bps: int,
    patience_s: float = PATIENCE_S,
) -> list[float]:
    """Start a transfer of that size on every connection at once; return the seconds to each one's last byte.

    ``size_bytes`` may be one for each connection.
    ``rate_bps`` is the least rate that they share. Raise StalledError if nothing arrives for ``patience_s``, if the
    transfers take many times their time at that rate, or if a connection is closed.
    """
    sizes_bytes = [size_bytes] * len(connections) if isinstance(size_bytes, int) else size_bytes
    ideal_s = 8 * sum(map(wire_bytes, sizes_bytes)) / rate_bps
    limit_s = patience_s + _PATIENCE_TIMES * ideal_s + _ROUNDS * max(each.ends.rtt_s for each in connections)
    with payload_file(_CHUNK_BYTES) as payload, selectors.DefaultSelector() as selector:
        began_ns = time.monotonic_ns()
        ended_ns: dict[int, int] = {}
        for number, connection in enumerate(connections):
            connection.begin(sizes_bytes[number])
            selector.register(connection.receiver, selectors.EVENT_READ, number)
            if connection.send(payload):
                selector.register(connection.sender, selectors.EVENT_WRITE, number)
        while len(ended_ns) < len(connections):
            left_s = limit_s - (time.monotonic_ns() - began_ns) / 1e9
            ready = selector.select(min(patience_s, left_s)) if left_s > 0 else []
            if not ready:
                stalled = next(each for number, each in enumerate(connections) if number not in ended_ns)
                raise StalledError(f"{stalled.ends}: {_late(patience_s, limit_s, left_s)}")
            now_ns = time.monotonic_ns()
            for key, event in ready:
                connection = connections[key.data]
                if event == selectors.EVENT_WRITE:
                    if not connection.send(payload):
                        selector.unregister(key.fileobj)
                elif not connection.receive():
                    ended_ns[key.data] = now_ns
                    selector.unregister(key.fileobj)
    return [(ended_ns[number] - began_ns) / 1e9 for number in range(len(connections))]


def _late(patience_s: float, limit_s: float, left_s: float) -> str:
    if left_s > patience_s:
        return f"nothing arrived in {patience_s:.0f} s"
    return f"a transfer was not done after {limit_s:.0f} s"


def open_windows(
    connections: Sequence[TimedConnection],
    flight_bytes: int,
    rate_bps: int,
    rtt_s: float,
    patience_s: float = PATIENCE_S,
) -> None:
    """Send until slow start has opened every window to ``flight_bytes`` in flight. Raise StalledError on failure.

    Slow start takes twice these bytes for it; the transfer is larger, for a margin.
    """
    transfers_s(connections, _SLOW_START_TIMES * flight_bytes, rate_bps, patience_s)
    # The last acknowledgements open the window too.
    time.sleep(2 * rtt_s)
