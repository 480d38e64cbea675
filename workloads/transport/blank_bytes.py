"""Bytes that nobody reads, sent without a copy: zeros that the kernel's pages hold once."""

import os
import socket
from functools import cache

from workloads.transport.frame import CHUNK_BYTES


def send_blank(connected: socket.socket, size_bytes: int) -> int:
    """Offer so many zeros, at most a chunk of them, to the kernel; how many it has accepted.

    Raises BlockingIOError if it takes none now, OSError if the connection has failed.
    """
    return os.sendfile(connected.fileno(), _zeros(), 0, size_bytes)


@cache
def _zeros() -> int:
    """A file of one chunk, in memory, for the life of this process."""
    zeros = os.memfd_create("zeros")
    os.write(zeros, bytes(CHUNK_BYTES))
    return zeros
