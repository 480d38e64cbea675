"""Try whether a program may give its sockets larger receive buffers than the machine allows everybody."""

import socket

_SO_RCVBUFFORCE = 33


def windows_held() -> bool:
    """Return whether ranks can hold their receive windows at the configured size.

    The kernel refuses it without NET_ADMIN outside every user namespace. It then tunes the window itself, up to the
    configured buffer.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tried:
        try:
            tried.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 2**16)
        except PermissionError:
            return False
    return True
