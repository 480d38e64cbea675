"""Try whether a program may give its sockets larger receive buffers than the machine allows everybody."""

import socket

_SO_RCVBUFFORCE = 33


def large_buffers_allowed() -> bool:
    """Return whether a program may give its sockets any receive buffer, which takes NET_ADMIN outside user namespaces.

    Where it may not, the sysctls of the hosts' network namespaces give every socket its buffer.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tried:
        try:
            tried.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 2**16)
        except PermissionError:
            return False
    return True
