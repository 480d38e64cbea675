"""Send many changes to the kernel in one system call, and know when it has made them."""

import os
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from wanbed.testbed.kernel.namespace import inside
from wanbed.testbed.kernel.netlink_dump import split_messages

_HEADER = struct.Struct("=IHHII")
_ERROR = struct.Struct("=i")
_NLM_F_REQUEST, _NLM_F_ACK = 0x1, 0x4
_NLMSG_ERROR = 2
_BATCH_BYTES = 128 * 1024
"""The most bytes for one system call, within the default limit of a socket's buffer."""
_RECEIVE_BYTES = 64 * 1024


class EncodedRequests(NamedTuple):
    """Requests as they are sent: what goes with each system call, all under one sequence number."""

    sequence: int
    batches: tuple[bytes, ...]


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
        self.send(self.encode(requests))

    def encode(self, requests: Iterable[tuple[int, bytes]]) -> EncodedRequests:
        """Do beforehand all that ``send`` need not do in time. What is encoded may be sent several times."""
        self._sequence += 1
        batches: list[list[tuple[int, bytes]]] = []
        left_bytes = 0
        for request in requests:
            if left_bytes <= 0:
                batches.append([])
                left_bytes = _BATCH_BYTES
            batches[-1].append(request)
            left_bytes -= _HEADER.size + len(request[1])
        return EncodedRequests(self._sequence, tuple(_encoded(batch, self._sequence) for batch in batches))

    def send(self, encoded: EncodedRequests) -> None:
        """Make changes that were encoded. They are made when this returns; raise OSError like ``make``."""
        for batch in encoded.batches:
            self._socket.send(batch)
            refused, last = 0, False
            while not last:
                for kind, payload in split_messages(self._socket.recv(_RECEIVE_BYTES), encoded.sequence):
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


def _encoded(batch: Sequence[tuple[int, bytes]], sequence: int) -> bytes:
    messages = bytearray()
    for number, (kind, body) in enumerate(batch, start=1):
        # The kernel answers refused requests, and of the others only those that ask for it.
        flags = _NLM_F_REQUEST | (_NLM_F_ACK if number == len(batch) else 0)
        messages += _HEADER.pack(_HEADER.size + len(body), kind, flags, sequence, 0)
        messages += body
    return bytes(messages)
