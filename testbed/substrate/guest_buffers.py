"""Enlarge the receive buffers of the gateway guest's raw sockets, which the guest opens with the machine's default.

A TAP device queues a thousand packets; a raw socket drops what its buffer cannot hold while the guest is not running.
The default buffer of 208 KiB holds three super-packets.
"""

import ctypes
import os
import socket
from collections.abc import Iterable
from contextlib import suppress

WANTED_BYTES = 2**23
"""Enough for 60 ms at 1 Gbit/s."""

_PIDFD_GETFD = 438
_SO_RCVBUFFORCE = 33
_libc = ctypes.CDLL(None, use_errno=True)


def enlarge_buffers(pids: Iterable[int]) -> int | None:
    """Enlarge the buffers of all packet sockets of these processes, and return the size of the smallest.

    Without root a size is limited by ``net.core.rmem_max``. None if there is no such socket, or none may be touched.
    """
    sizes = []
    for pid in pids:
        for descriptor in _packet_sockets(pid):
            with socket.socket(fileno=descriptor) as raw:
                sizes.append(_enlarged(raw))
    return min(sizes, default=None)


def _enlarged(raw: socket.socket) -> int:
    try:
        # The kernel doubles the requested size.
        raw.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, WANTED_BYTES // 2)
    except PermissionError:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WANTED_BYTES // 2)
    return raw.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def _packet_sockets(pid: int) -> list[int]:
    """Return duplicates of a process's packet sockets."""
    duplicates = []
    with suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            for entry in os.scandir(f"/proc/{pid}/fd"):
                if not os.readlink(entry.path).startswith("socket:"):
                    continue
                duplicate = _libc.syscall(_PIDFD_GETFD, process, int(entry.name), 0)
                if duplicate < 0:
                    continue
                with socket.socket(fileno=os.dup(duplicate)) as probe:
                    is_packet = probe.family == socket.AF_PACKET
                if is_packet:
                    duplicates.append(duplicate)
                else:
                    os.close(duplicate)
        finally:
            os.close(process)
    return duplicates
