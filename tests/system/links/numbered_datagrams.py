"""Datagrams with a number each, sent when a timetable says so, and when each of them arrived."""

import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass

from wanbed.testbed.measurement.bounded_transfer import Ends

_NUMBER = struct.Struct("=I")
_SO_TIMESTAMPNS, _SO_RCVBUFFORCE = 35, 33
_BUFFER_BYTES = 64 * 2**20
_SPEC = struct.Struct("=qq")


@dataclass(frozen=True)
class Sent:
    """A datagram: when it was given to the kernel, and when it arrived, None if never; in ns of the monotonic clock."""

    sent_ns: int
    arrived_ns: int | None


class DatagramFlow:
    """A flow from one host to another."""

    def __init__(self, ends: Ends) -> None:
        self._receiver = ends.socket(ends.destination, socket.SOCK_DGRAM)
        self._receiver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        self._receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._receiver.setblocking(False)
        self._sender = ends.socket(ends.source, socket.SOCK_DGRAM)
        self._sender.connect(self._receiver.getsockname())
        self._sent_ns: list[int] = []

    def send(self, size_bytes: int) -> None:
        """Send one datagram with a payload of that size."""
        payload = _NUMBER.pack(len(self._sent_ns)) + bytes(size_bytes - _NUMBER.size)
        self._sent_ns.append(time.monotonic_ns())
        self._sender.send(payload)

    def arrivals(self) -> tuple[list[int], list[Sent]]:
        """Return the numbers in the order in which datagrams arrived, and every datagram; close the flow."""
        ahead_ns = time.time_ns() - time.monotonic_ns()
        arrived_ns: dict[int, int] = {}
        order = []
        while True:
            try:
                data, ancillary, _, _ = self._receiver.recvmsg(65536, 256)
            except BlockingIOError:
                break
            (number,) = _NUMBER.unpack_from(data)
            seconds, nanoseconds = _SPEC.unpack_from(ancillary[0][2])
            order.append(number)
            arrived_ns[number] = seconds * 10**9 + nanoseconds - ahead_ns
        self._receiver.close()
        self._sender.close()
        return order, [Sent(sent_ns, arrived_ns.get(number)) for number, sent_ns in enumerate(self._sent_ns)]


def send_at(flow: DatagramFlow, times_ns: Iterable[int], size_bytes: int) -> None:
    """Send a datagram at each of these times of the monotonic clock."""
    for at_ns in times_ns:
        left_ns = at_ns - time.monotonic_ns()
        if left_ns > 0:
            time.sleep(left_ns / 1e9)
        flow.send(size_bytes)
