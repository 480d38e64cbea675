"""Make the sockets between ranks, and set their options."""

import socket
import struct

from workloads.transport.peer import UNSENT_BYTES, TransportError

PEER_TIMEOUT_S = 8
"""A peer that acknowledges nothing for so long is gone; failing within 10 s leaves 2 s for the news to spread."""

_SO_RCVBUFFORCE = 33
_BUFFER_SHARES = 4
_KEEPALIVE_S = 2
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_DELIVER_AFTER_CLOSE = struct.pack("ii", 0, 0)


def make_socket(
    address: str,
    port: int,
    congestion: str | None,
    window_bytes: int | None = None,
) -> socket.socket:
    """Make a non-blocking TCP socket bound to that local address; port 0 is any.

    Accepted connections inherit its options. With ``window_bytes`` the peer may have so much in flight, as long as the
    reader calls ``hold_window``; else the kernel tunes the window. Raises TransportError where the kernel refuses the
    address, the port, the congestion control or the buffer.
    """
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PEER_TIMEOUT_S // _KEEPALIVE_S - 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, PEER_TIMEOUT_S * 1000)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        hold_unsent(made, UNSENT_BYTES)
        if congestion is not None:
            try:
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
            except OSError as refusal:
                raise TransportError(
                    f"the kernel refuses the congestion control {congestion!r} ({refusal.strerror}): "
                    f"load the module tcp_{congestion}, or name one that it has"
                ) from None
        if window_bytes is not None:
            _make_room(made, window_bytes)
            hold_window(made, window_bytes)
        try:
            made.bind((address, port))
        except OSError as refusal:
            raise TransportError(f"cannot bind {address} port {port}: {refusal.strerror}") from None
    except BaseException:
        made.close()
        raise
    return made


def hold_unsent(connection: socket.socket, unsent_bytes: int) -> None:
    """Limit the bytes that a socket holds unsent to about ``unsent_bytes``; others go where they really move."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, unsent_bytes)


def hold_window(connection: socket.socket, window_bytes: int) -> None:
    """Advertise a window of so many bytes, until the kernel learns better.

    The kernel learns from the first full segment, which shows how much of a buffer is payload, and widens the window to
    all of it. So the reader calls this again.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, window_bytes)


def _make_room(made: socket.socket, window_bytes: int) -> None:
    """Make the buffer hold twice the window, as the kernel counts: unread bytes then take none of the window."""
    asked = _BUFFER_SHARES * window_bytes // 2
    try:
        made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, asked)
    except PermissionError:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, asked)
    if (given := made.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)) < _BUFFER_SHARES * window_bytes:
        raise TransportError(
            f"the kernel gives a receive buffer of {given} bytes, where a window of {window_bytes} takes "
            f"{_BUFFER_SHARES * window_bytes}: run as root, or raise net.core.rmem_max"
        )


def reset_on_close(connection: socket.socket) -> None:
    """Let closing (or dying) discard what is queued and tell the peer at once, by a reset, from now on."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)


def deliver_after_close(connection: socket.socket) -> None:
    """Let closing still deliver what is queued, from now on."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DELIVER_AFTER_CLOSE)
