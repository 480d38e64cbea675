"""Send bytes that nobody reads, without a copy: zeros that the kernel's pages hold once."""

import os
import socket
from functools import cache

from workloads.transport.frames.frame import CHUNK_BYTES


def send_blank(connected: socket.socket, size_bytes: int) -> int:
    """Offer ``size_bytes`` zeros, at most a chunk, to the kernel. Returns how many it has accepted.

    Raises BlockingIOError if it takes none now, OSError if the connection has failed.
    """
    return os.sendfile(connected.fileno(), _zeros(), 0, size_bytes)


@cache
def _zeros() -> int:
    """Return a file of one chunk of zeros, in memory, for the life of this process."""
    zeros = os.memfd_create("zeros")
    os.write(zeros, bytes(CHUNK_BYTES))
    return zeros
