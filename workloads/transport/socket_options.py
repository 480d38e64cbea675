"""Make the sockets between ranks, and set their options."""

import errno
import socket
import struct
from ipaddress import ip_address

from wanbed.ground.socket_owner import listener_at
from wanbed.workloads.transport.peer import UNSENT_BYTES, TransportError

PEER_TIMEOUT_S = 8
"""A peer that acknowledges nothing for so long is lost, where no link is known to be down for a while.

Every rank must fail within 10 s, so 2 s are left for that.
"""

_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_BUFFER_PER_WINDOW = 4
_KEEPALIVE_S = 2
_KEEPALIVES_MOST = 127
"""The most probes that the kernel takes. With a user timeout it does not count them: only that time decides."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_DELIVER_AFTER_CLOSE = struct.pack("ii", 0, 0)


def make_socket(
    address: str,
    port: int,
    window_bytes: int | None = None,
    *,
    congestion: str | None = None,
    peer_timeout_s: int = PEER_TIMEOUT_S,
) -> socket.socket:
    """Make a non-blocking TCP socket bound to that local address. Port 0 stands for any free port.

    Accepted connections inherit its options. With ``window_bytes`` the receive window has that size, as long as the
    reader calls ``hold_window``; otherwise the kernel tunes the window. A connection fails when its peer has
    acknowledged nothing for ``peer_timeout_s``. Raise TransportError if the kernel refuses the address, the port, the
    congestion control or the buffer.
    """
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_S)
        made.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_KEEPCNT, min(peer_timeout_s // _KEEPALIVE_S - 1, _KEEPALIVES_MOST)
        )
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, peer_timeout_s * 1000)
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
            holder = listener_at(address, port) if refusal.errno == errno.EADDRINUSE else None
            raise TransportError(f"cannot bind {address} port {port}: {holder or refusal.strerror}") from None
    except BaseException:
        made.close()
        raise
    return made


def hold_unsent(connection: socket.socket, unsent_bytes: int) -> None:
    """Limit the bytes that a socket holds unsent to about ``unsent_bytes``; the rest goes over faster connections."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, unsent_bytes)


def hold_window(connection: socket.socket, window_bytes: int) -> None:
    """Advertise a window of ``window_bytes``, until the kernel widens it.

    The first full segment shows the kernel how much of a buffer is payload. It then widens the window to all of it, so
    that the reader must call this again.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, window_bytes)


def _make_room(made: socket.socket, window_bytes: int) -> None:
    """Make both buffers hold twice the window in the kernel's accounting.

    Then unread bytes do not narrow the window. And a send buffer does not hold a window back: by itself the kernel lets
    it grow only while it is in use, so that a transfer's first round trips would be cut short by the transfer before.
    The kernel doubles the value that it is given. Where this user may not ask for so much, the host gives every socket
    the room. Raise TransportError if a buffer is smaller in the end.
    """
    wanted_bytes = _BUFFER_PER_WINDOW * window_bytes
    for name, option, forced, most in (
        ("receive", socket.SO_RCVBUF, _SO_RCVBUFFORCE, "rmem_max"),
        ("send", socket.SO_SNDBUF, _SO_SNDBUFFORCE, "wmem_max"),
    ):
        try:
            made.setsockopt(socket.SOL_SOCKET, forced, wanted_bytes // 2)
        except PermissionError:
            if made.getsockopt(socket.SOL_SOCKET, option) < wanted_bytes:
                made.setsockopt(socket.SOL_SOCKET, option, wanted_bytes // 2)
        if (given_bytes := made.getsockopt(socket.SOL_SOCKET, option)) < wanted_bytes:
            raise TransportError(
                f"the kernel gives a {name} buffer of {given_bytes} bytes, where a window of {window_bytes} takes "
                f"{wanted_bytes}: run as root, or raise net.core.{most}"
            )


def peer_listens(address: str, port: int) -> bool:
    """Return whether a peer can be called at an address, which is true of any that is not on the loopback.

    The loopback belongs to all users, so there only a socket of this user is called. Raise TransportError if another
    user's listens.
    """
    if not ip_address(address).is_loopback:
        return True
    listener = listener_at(address, port)
    if listener is not None and not listener.own:
        raise TransportError(f"no peer is called at {address} port {port}: {listener}: end that program")
    return listener is not None


def reset_on_close(connection: socket.socket) -> None:
    """From now on, let close (or the end of the process) discard queued bytes and send the peer a reset at once."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)


def deliver_after_close(connection: socket.socket) -> None:
    """From now on, let close still deliver queued bytes."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DELIVER_AFTER_CLOSE)
