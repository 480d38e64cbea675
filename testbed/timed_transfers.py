"""How long transfers take, alone after a pause or several at once: on either clock, to the arrival of the last byte.

Both ends are sockets of this process in the hosts' namespaces. One thread sends and receives, waits for packets by
``select``, and so sees them arrive within the cost of a system call.
"""

import math
import os
import select
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from testbed.shared_rate import FRAME_BYTES
from testbed.virtual_time.bounded_transfer import SEGMENT_BYTES, Ends, StalledError, connected, discard, payload_file

PATIENCE_S = 60.0
_CHUNK_BYTES = 4 * 2**20
_SLOW_START_TIMES = 4
_SCRATCH = bytearray(4 * 2**20)


def wire_bytes(size_bytes: int) -> int:
    """Bytes on the wire, Ethernet headers included, of a transfer in full segments."""
    return size_bytes + (FRAME_BYTES - SEGMENT_BYTES) * math.ceil(size_bytes / SEGMENT_BYTES)


@dataclass
class Connection:
    """One TCP connection between two hosts, for transfers one after the other."""

    ends: Ends
    sender: socket.socket
    receiver: socket.socket
    _unsent: int = field(default=0, init=False)
    _missing: int = field(default=0, init=False)

    def begin(self, size_bytes: int) -> None:
        """Have so much to send."""
        self._unsent = self._missing = size_bytes

    def send(self, payload: int) -> bool:
        """Hand the kernel as much as it takes; whether something is left to send."""
        with suppress(BlockingIOError):
            while self._unsent:
                self._unsent -= os.sendfile(self.sender.fileno(), payload, 0, min(_CHUNK_BYTES, self._unsent))
        return self._unsent > 0

    def receive(self) -> bool:
        """Take what has arrived; whether something is missing still."""
        self._missing -= discard(self.receiver, _SCRATCH)
        return self._missing > 0


@contextmanager
def open_connection(ends: Ends, buffer_bytes: int) -> Iterator[Connection]:
    """A connection whose buffers at both ends have that size from the start."""
    with connected(ends, 1, buffer_bytes) as ((sender,), (receiver,)):
        # The last bytes wait for no acknowledgement.
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield Connection(ends, sender, receiver)


def transfers_s(connections: Sequence[Connection], size_bytes: int, patience_s: float = PATIENCE_S) -> list[float]:
    """Start a transfer of that size on every connection at once; from then to each one's last byte, in seconds.

    Raises StalledError for what has not arrived after ``patience_s`` without anything.
    """
    with payload_file(_CHUNK_BYTES) as payload:
        began_ns = time.monotonic_ns()
        ended_ns: dict[int, int] = {}
        senders, receivers = {}, {}
        for number, connection in enumerate(connections):
            connection.begin(size_bytes)
            receivers[connection.receiver] = number
            if connection.send(payload):
                senders[connection.sender] = connection
        while receivers:
            arrived, writable, _ = select.select(list(receivers), list(senders), [], patience_s)
            if not arrived and not writable:
                stalled = connections[next(iter(receivers.values()))].ends
                raise StalledError(f"{stalled}: nothing arrived in {patience_s:.0f} s")
            now_ns = time.monotonic_ns()
            for receiver in arrived:
                number = receivers[receiver]
                if not connections[number].receive():
                    ended_ns[number] = now_ns
                    del receivers[receiver]
            for sender in writable:
                if not senders[sender].send(payload):
                    del senders[sender]
    return [(ended_ns[number] - began_ns) / 1e9 for number in range(len(connections))]


def open_windows(
    connections: Sequence[Connection], flight_bytes: int, rtt_s: float, patience_s: float = PATIENCE_S
) -> None:
    """Open every window to so many bytes in flight: slow start takes twice as many for it. Raises StalledError."""
    transfers_s(connections, _SLOW_START_TIMES * flight_bytes, patience_s)
    # The last acknowledgements open the window too.
    time.sleep(2 * rtt_s)
