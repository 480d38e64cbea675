"""Find the TCP sockets that listen in this process's own network namespace. No privilege is needed."""

import socket
import struct
from contextlib import suppress
from pathlib import Path

from testbed.kernel.netlink_dump import NetlinkDump

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_LISTEN = 10
_REQUEST = struct.pack("=BBBxI48x", socket.AF_INET, socket.IPPROTO_TCP, 0, 1 << _LISTEN)
_SOCKET = struct.Struct(">4xH2x4s")

Address = tuple[str, int]
"""An IPv4 address and a port."""


class ListeningSockets:
    """Read the listening sockets by netlink, or from /proc where the kernel has no ``sock_diag``."""

    def __init__(self, proc: Path = Path("/proc/net/tcp")) -> None:
        self._proc = proc
        self._netlink: NetlinkDump | None = None
        with suppress(OSError):
            self._netlink = NetlinkDump(None, _NETLINK_SOCK_DIAG)

    def read(self) -> set[Address]:
        """Return where sockets listen now."""
        if self._netlink is not None:
            try:
                return {_address(message) for message in self._netlink.ask(_SOCK_DIAG_BY_FAMILY, _REQUEST)}
            except OSError:
                self.close()
        return listening_in(self._proc.read_text(encoding="ascii"))

    def close(self) -> None:
        """Close the netlink socket."""
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None


def listening_in(table: str) -> set[Address]:
    """Return where sockets listen, from the text of /proc/net/tcp."""
    found = set()
    for line in table.splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        if int(state, 16) == _LISTEN:
            address, port = local.split(":")
            # The kernel prints the address as a number in the machine's byte order.
            found.add((socket.inet_ntop(socket.AF_INET, struct.pack("=I", int(address, 16))), int(port, 16)))
    return found


def _address(message: memoryview) -> Address:
    port, address = _SOCKET.unpack_from(message)
    return socket.inet_ntop(socket.AF_INET, address), port
