"""Send zeros without a copy, for payloads that no rank reads. The kernel holds them once."""

import os
import socket
from functools import cache

from wanbed.workloads.transport.frames.frame import CHUNK_BYTES


def send_blank(connected: socket.socket, size_bytes: int) -> int:
    """Offer ``size_bytes`` zeros, at most a chunk, to the kernel. Return how many it has accepted.

    Raise BlockingIOError if it accepts none now, OSError if the connection has failed.
    """
    return os.sendfile(connected.fileno(), _zeros(), 0, size_bytes)


@cache
def _zeros() -> int:
    """Return the descriptor of an in-memory file of one chunk of zeros, which stays open until the process ends."""
    zeros = os.memfd_create("zeros")
    os.write(zeros, bytes(CHUNK_BYTES))
    return zeros
