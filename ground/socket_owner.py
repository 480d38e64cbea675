"""Find out whose program listens at a TCP address here, or is at the other end of a connection on the loopback.

Every user may bind every address of the loopback. So the address of a caller says nothing there, and the kernel does.
No privilege is needed.
"""

import errno
import os
import pwd
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_FLAG = 1
_LISTEN = 10
_HEADER = struct.Struct("=IHHII")
_FAMILIES = struct.Struct("=BBBxI")
_ENDS = struct.Struct(">HH4s12x4s12x")
_NO_INTERFACE_NOR_COOKIE = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_FOUND = struct.Struct(">4xH2x4s")
_UID = struct.Struct("=I")
_UID_OFFSET = 64
_RECEIVE_BYTES = 4096
_PROC = Path("/proc/net")

ANY_ADDRESS = socket.inet_ntoa(bytes(4))
"""The address of a socket that listens at all addresses."""


@dataclass(frozen=True)
class TcpListener:
    """A socket that listens at ``address``, which may be ``ANY_ADDRESS``, and its user."""

    address: str
    port: int
    uid: int

    @property
    def own(self) -> bool:
        """True if the socket belongs to the user of this process."""
        return self.uid == os.geteuid()

    def __str__(self) -> str:
        return f"{self.address}:{self.port} is taken by {user_text(self.uid)}"


def user_text(uid: int) -> str:
    """Return a user's name and number, as messages show them."""
    with suppress(KeyError):
        return f"user {pwd.getpwuid(uid).pw_name} (uid {uid})"
    return f"uid {uid}"


def listener_at(address: str, port: int) -> TcpListener | None:
    """Return the socket that a connection to an IPv4 address would reach, None if nobody listens there."""
    try:
        return _asked(address, port)
    except OSError:
        # A sandbox may have no sock_diag.
        tables = [file.read_text() for name in ("tcp", "tcp6") if (file := _PROC / name).exists()]
        return listener_in(tables, address, port)


def found_listener(message: memoryview) -> TcpListener:
    """Return the listener of a kernel's ``inet_diag_msg``, of an IPv4 socket or of one of IPv6 that takes IPv4 too."""
    port, address = _FOUND.unpack_from(message)
    (uid,) = _UID.unpack_from(message, _UID_OFFSET)
    shown = socket.inet_ntop(socket.AF_INET, address) if message[0] == socket.AF_INET else ANY_ADDRESS
    return TcpListener(shown, port, uid)


def listener_in(tables: list[str], address: str, port: int) -> TcpListener | None:
    """Return the same as ``listener_at`` from the texts of /proc/net/tcp and /proc/net/tcp6."""
    found = [each for table in tables for each in listeners_in(table) if each.port == port]
    exact = [each for each in found if each.address == address]
    return next(iter(exact or [each for each in found if each.address == ANY_ADDRESS]), None)


def listeners_in(table: str) -> list[TcpListener]:
    """Return the sockets that listen at IPv4 addresses or at all addresses, from the text of /proc/net/tcp or tcp6."""
    found = []
    for line in table.splitlines()[1:]:
        _, local, _, state, _, _, _, uid, *_ = line.split()
        address, port = local.split(":")
        if int(state, 16) != _LISTEN or (len(address) > 8 and int(address, 16)):
            continue
        # The kernel prints the address as a number in the machine's byte order.
        shown = (
            ANY_ADDRESS if len(address) > 8 else socket.inet_ntop(socket.AF_INET, struct.pack("=I", int(address, 16)))
        )
        found.append(TcpListener(shown, int(port, 16), int(uid)))
    return found


def _asked(address: str, port: int) -> TcpListener | None:
    """Ask the kernel by netlink, which finds the socket as for a connection. Raise OSError if it cannot be asked."""
    found = _socket_entry((address, port), (ANY_ADDRESS, 0), 1 << _LISTEN)
    return None if found is None else found_listener(found)


def _socket_entry(own: tuple[str, int], other: tuple[str, int], states: int) -> memoryview | None:
    """Return the kernel's ``inet_diag_msg`` of the TCP socket with these ends, None if there is none in such a state.

    Raise OSError if the kernel cannot be asked.
    """
    ends = _ENDS.pack(own[1], other[1], socket.inet_aton(own[0]), socket.inet_aton(other[0]))
    body = _FAMILIES.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, states) + ends + _NO_INTERFACE_NOR_COOKIE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
        netlink.bind((0, 0))
        netlink.send(_HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST_FLAG, 1, 0) + body)
        answer = memoryview(netlink.recv(_RECEIVE_BYTES))
    kind = _HEADER.unpack_from(answer)[1]
    if kind == _SOCK_DIAG_BY_FAMILY:
        return answer[_HEADER.size :]
    number = -struct.unpack_from("=i", answer, _HEADER.size)[0]
    if number == errno.ENOENT:
        return None
    raise OSError(number, os.strerror(number))


_ALL_STATES = 0xFFFFFFFF
_LOOPBACK = "127."

_STATE_OFFSET = 1

_ROOT = 0


def foreign_caller(connection: socket.socket) -> str | None:
    """Return the user who has called, as messages show it, if that is another one than this process's.

    Return None for an own caller, for one that is on no loopback or has gone, and if the kernel does not say.
    """
    # Whoever has gone has no peer, or no user any more.
    with suppress(OSError):
        caller, called = connection.getpeername(), connection.getsockname()
        if not caller[0].startswith(_LOOPBACK):
            return None
        found = _socket_entry(caller, called, _ALL_STATES)
        # What has been closed shows as root's. Root needs no socket to do harm.
        if found is not None and found[_STATE_OFFSET] != _LISTEN:
            (uid,) = _UID.unpack_from(found, _UID_OFFSET)
            return None if uid in {_ROOT, os.geteuid()} else user_text(uid)
    return None


def accept_own(listener: socket.socket) -> socket.socket:
    """Accept the next connection whose caller is no other user's program, and close those before it.

    Raise OSError as ``accept`` does.
    """
    while True:
        made, _ = listener.accept()
        if foreign_caller(made) is None:
            return made
        made.close()
