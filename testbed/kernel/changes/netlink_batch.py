"""Send many changes to the kernel in one system call, and know when it has made them."""

import os
import socket
import struct
from collections.abc import Iterable

from testbed.kernel.namespace import inside
from testbed.kernel.netlink_dump import split_messages

_HEADER = struct.Struct("=IHHII")
_ERROR = struct.Struct("=i")
_NLM_F_REQUEST, _NLM_F_ACK = 0x1, 0x4
_NLMSG_ERROR = 2
_BATCH_BYTES = 128 * 1024
"""What one system call takes, within the default limit of a socket's buffer."""
_RECEIVE_BYTES = 64 * 1024


class NetlinkBatch:
    """A socket for routing requests inside a namespace. Close it: an open socket keeps the namespace alive."""

    def __init__(self, namespace: str) -> None:
        with inside(namespace):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.bind((0, 0))
        self._sequence = 0

    def close(self) -> None:
        """Close the socket, which releases the namespace."""
        self._socket.close()

    def make(self, requests: Iterable[tuple[int, bytes]]) -> None:
        """Make all changes, each a kind of message and its body, in order. They are made when this returns.

        Raise OSError with the kernel's error number if it refuses one; the others are made all the same.
        """
        batch: list[tuple[int, bytes]] = []
        size_bytes = 0
        for request in requests:
            batch.append(request)
            size_bytes += _HEADER.size + len(request[1])
            if size_bytes > _BATCH_BYTES:
                self._send(batch)
                batch, size_bytes = [], 0
        if batch:
            self._send(batch)

    def _send(self, batch: list[tuple[int, bytes]]) -> None:
        self._sequence += 1
        messages = bytearray()
        for number, (kind, body) in enumerate(batch, start=1):
            # The kernel answers refused requests, and of the others only those that ask for it.
            flags = _NLM_F_REQUEST | (_NLM_F_ACK if number == len(batch) else 0)
            messages += _HEADER.pack(_HEADER.size + len(body), kind, flags, self._sequence, 0)
            messages += body
        self._socket.send(messages)
        refused, last = 0, False
        while not last:
            for kind, payload in split_messages(self._socket.recv(_RECEIVE_BYTES), self._sequence):
                if kind == _NLMSG_ERROR:
                    error, answered = self._answer(payload)
                    refused = refused or error
                    last = answered
        if refused:
            raise OSError(refused, f"changing a port: {os.strerror(refused)}")

    @staticmethod
    def _answer(payload: memoryview) -> tuple[int, bool]:
        """Return the error number, 0 for none, and whether the request answered asked for an answer: the last one."""
        flags = _HEADER.unpack_from(payload, _ERROR.size)[2]
        return -_ERROR.unpack_from(payload)[0], bool(flags & _NLM_F_ACK)
