"""Find the TCP sockets that listen in this process's own network namespace. No privilege is needed."""

import socket
import struct
from contextlib import suppress
from pathlib import Path

from wanbed.ground.tcp_listener import TcpListener, found_listener, listeners_in
from wanbed.testbed.kernel.netlink_dump import NetlinkDump

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_LISTEN = 10
_REQUEST = struct.pack("=BBBxI48x", socket.AF_INET, socket.IPPROTO_TCP, 0, 1 << _LISTEN)

Address = tuple[str, int]
"""An IPv4 address and a port."""


class ListeningSockets:
    """Read the listening sockets by netlink, or from /proc where the kernel has no ``sock_diag``."""

    def __init__(self, proc: Path = Path("/proc/net/tcp")) -> None:
        self._proc = proc
        self._netlink: NetlinkDump | None = None
        with suppress(OSError):
            self._netlink = NetlinkDump(None, _NETLINK_SOCK_DIAG)

    def read(self) -> list[TcpListener]:
        """Return the sockets that listen now, those of every user."""
        if self._netlink is not None:
            try:
                return [found_listener(message) for message in self._netlink.ask(_SOCK_DIAG_BY_FAMILY, _REQUEST)]
            except OSError:
                self.close()
        return listeners_in(self._proc.read_text(encoding="ascii"))

    def close(self) -> None:
        """Close the netlink socket."""
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None
