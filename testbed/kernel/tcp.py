"""Read the machine's TCP from the kernel: its connections' state, the sockets that listen, the congestion controls.

Sockets are listed by netlink (``sock_diag``), connections at both ends. Listing takes no privilege.
"""

import errno
import socket
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from wanbed.ground.errors import MissingError
from wanbed.ground.socket_owner import TcpListener, found_listener, listeners_in
from wanbed.testbed.kernel.netlink_dump import NetlinkDump, split_attributes

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_INET_DIAG_INFO, _INET_DIAG_CONG = 2, 4
_ESTABLISHED = 1 << 1

_INET_DIAG_REQUEST = struct.Struct("=BBBxI48x")
"""``inet_diag_req_v2``: family, protocol, extensions, states; for all addresses."""

_SOCKET = struct.Struct(">4x HH 4s12x 4s12x 32x")
"""``inet_diag_msg``: both ports and both addresses."""

_TCP_INFO = struct.Struct("=7xB 8xI4xI 40xII4xI 16xI 16xQ 16xII8x Q 8xQQ 8xQ 20xI")
"""``tcp_info`` of Linux 5.4 and later, up to the peer's window; newer kernels append fields."""

_NEVER = 2**32 - 1


class TcpState(NamedTuple):
    """The state of one end of an established connection.

    The fields are those of the table of TCP samples. None means that the kernel has not measured the value yet.
    """

    source: str
    destination: str
    source_port: int
    destination_port: int
    congestion: str
    rtt_ns: int
    rtt_variation_ns: int
    shortest_rtt_ns: int | None
    cwnd_segments: int
    mss_bytes: int
    unacked_segments: int
    unsent_bytes: int
    peer_window_bytes: int
    delivery_rate_bps: int | None
    delivery_app_limited: bool
    acked_bytes: int
    sent_bytes: int
    retransmitted_segments: int
    window_limited_ns: int
    buffer_limited_ns: int


class TcpStates(Protocol):
    """A reader of the state of every connection of a testbed."""

    def read(self) -> list[memoryview]:
        """Return one message for each end of each established connection; ``tcp_states`` parses them later."""

    def close(self) -> None:
        """Release what the reader holds."""


class TcpStateReader:
    """Read the sockets of every host; ``namespaces`` are the paths of the hosts' network namespaces.

    The reader keeps a netlink socket open in each namespace. Close the reader: open sockets keep the namespaces alive.
    """

    def __init__(self, namespaces: Iterable[str]) -> None:
        self._netlink = [NetlinkDump(namespace, _NETLINK_SOCK_DIAG) for namespace in namespaces]

    def close(self) -> None:
        """Close the sockets, which releases the namespaces."""
        for each in self._netlink:
            each.close()

    def read(self) -> list[memoryview]:
        """Return one message for each end of each established connection; ``tcp_states`` parses them later.

        Raise MissingError if the kernel does not report TCP state, OSError for any other fault.
        """
        extensions = 1 << (_INET_DIAG_INFO - 1) | 1 << (_INET_DIAG_CONG - 1)
        request = _INET_DIAG_REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, extensions, _ESTABLISHED)
        try:
            return [message for each in self._netlink for message in each.ask(_SOCK_DIAG_BY_FAMILY, request)]
        except FileNotFoundError:
            raise MissingError(
                "the kernel does not report TCP connections' state: modprobe tcp_diag, or use a kernel that has it"
            ) from None


def tcp_states(messages: Iterable[memoryview], hosts: Mapping[str, str]) -> list[TcpState]:
    """Parse messages of ``TcpStateReader.read``; ``hosts`` maps addresses to host names.

    Connections that do not join two of these hosts are left out. Raise OSError for a message that cannot be parsed.
    """
    return [state for message in messages if (state := _tcp_state(message, hosts)) is not None]


def _tcp_state(message: memoryview, hosts: Mapping[str, str]) -> TcpState | None:
    source_port, destination_port, *addresses = _SOCKET.unpack_from(message)
    source, destination = (hosts.get(socket.inet_ntop(socket.AF_INET, address)) for address in addresses)
    if source is None or destination is None or source == destination:
        return None
    attributes = dict(split_attributes(message[_SOCKET.size :]))
    information = attributes.get(_INET_DIAG_INFO, b"")
    if len(information) < _TCP_INFO.size:
        raise OSError(errno.EPROTO, f"the kernel reported {len(information)} bytes of a connection's state, too few")
    (
        flags,
        mss_bytes,
        unacked_segments,
        rtt_us,
        rtt_variation_us,
        cwnd_segments,
        retransmitted_segments,
        acked_bytes,
        unsent_bytes,
        shortest_rtt_us,
        delivered_bytes_per_s,
        window_limited_us,
        buffer_limited_us,
        sent_bytes,
        peer_window_bytes,
    ) = _TCP_INFO.unpack_from(information)
    return TcpState(
        source=source,
        destination=destination,
        source_port=source_port,
        destination_port=destination_port,
        congestion=bytes(attributes.get(_INET_DIAG_CONG, b"")).rstrip(b"\0").decode(),
        rtt_ns=rtt_us * 1000,
        rtt_variation_ns=rtt_variation_us * 1000,
        shortest_rtt_ns=None if shortest_rtt_us == _NEVER else shortest_rtt_us * 1000,
        cwnd_segments=cwnd_segments,
        mss_bytes=mss_bytes,
        unacked_segments=unacked_segments,
        unsent_bytes=unsent_bytes,
        peer_window_bytes=peer_window_bytes,
        delivery_rate_bps=delivered_bytes_per_s * 8 or None,
        delivery_app_limited=bool(flags & 1),
        acked_bytes=acked_bytes,
        sent_bytes=sent_bytes,
        retransmitted_segments=retransmitted_segments,
        window_limited_ns=window_limited_us * 1000,
        buffer_limited_ns=buffer_limited_us * 1000,
    )


_LISTEN = 10

_LISTENERS = _INET_DIAG_REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 1 << _LISTEN)

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
                return [found_listener(message) for message in self._netlink.ask(_SOCK_DIAG_BY_FAMILY, _LISTENERS)]
            except OSError:
                self.close()
        return listeners_in(self._proc.read_text(encoding="ascii"))

    def close(self) -> None:
        """Close the netlink socket."""
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None


_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
_ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")


def available_congestion_controls() -> tuple[str, ...]:
    """Return the names of the congestion controls that this machine's kernel has loaded."""
    return tuple(_AVAILABLE.read_text().split())


def allow_congestion_control(name: str) -> None:
    """Allow every network namespace to use the congestion control ``name``, machine-wide.

    Namespaces other than the initial one may use only those on the kernel's list of allowed ones. Raise MissingError if
    the kernel does not have it.
    """
    if name not in available_congestion_controls():
        raise MissingError(
            f"congestion control {name!r} is not in this kernel, which has "
            f"{', '.join(available_congestion_controls())}: modprobe tcp_{name}, or use a kernel that has it"
        )
    allowed = _ALLOWED.read_text().split()
    if name not in allowed:
        try:
            _ALLOWED.write_text(" ".join([*allowed, name]))
        except OSError as fault:
            raise MissingError(
                f"congestion control {name!r} is not on the machine's list of allowed ones ({fault.strerror}): "
                f"as root: sysctl net.ipv4.tcp_allowed_congestion_control='{' '.join([*allowed, name])}'"
            ) from None
