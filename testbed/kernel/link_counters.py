"""Read statistics of qdiscs and classes, and compute the cumulative counters of WAN ports and node pairs from them.

Reading is cheap: in the gateway guest, one core also carries the traffic.

Bytes and packets are those that a class let through: wire bytes at the Ethernet layer, without preamble and gap. The
backlog is what its netem leaf holds, in flight or queued. Drops are netem's: loss and overflow together.
"""

import socket
import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from wanbed.testbed.kernel.netlink_dump import NetlinkDump, split_attributes
from wanbed.testbed.kernel.port_shape import TRUNK_CLASS
from wanbed.testbed.network.gateway_plan import WanPort, pair_class

RTM_GETQDISC, RTM_GETTCLASS = 38, 42
_TCA_KIND, _TCA_STATS2 = 1, 7
_TCA_STATS_BASIC, _TCA_STATS_QUEUE, _TCA_STATS_PKT64 = 1, 3, 8

_TCMSG = struct.Struct("=BxxxiIII")
_BASIC = struct.Struct("=QI")
_QUEUE = struct.Struct("=III")
_PACKETS = struct.Struct("=Q")


class Statistic(NamedTuple):
    """The statistics of one qdisc or class.

    ``interface`` is the index of its interface, ``minor`` and ``parent_minor`` are the minor numbers of its handle and
    of its parent's, ``kind`` is the qdisc's name. ``wire_bytes`` and ``packets`` count what was sent, ``drops`` counts
    packets dropped; ``backlog_bytes`` is waiting now.
    """

    interface: int
    minor: int
    parent_minor: int
    kind: str
    wire_bytes: int
    packets: int
    backlog_bytes: int
    drops: int


class StatisticsReader:
    """Read statistics through a netlink socket in a namespace. Close it: an open socket keeps the namespace alive."""

    def __init__(self, namespace: str) -> None:
        self._netlink = NetlinkDump(namespace, socket.NETLINK_ROUTE)

    def close(self) -> None:
        """Close the socket, which releases the namespace."""
        self._netlink.close()

    def qdiscs(self) -> list[Statistic]:
        """Return the statistics of every qdisc of every interface. Raise OSError if the dump fails."""
        return self._dump(RTM_GETQDISC, 0)

    def classes(self, index: int) -> list[Statistic]:
        """Return the statistics of the classes of one interface. Raise OSError if the dump fails."""
        return self._dump(RTM_GETTCLASS, index)

    def _dump(self, kind: int, index: int) -> list[Statistic]:
        return [parse_statistic(payload) for payload in self._netlink.ask(kind, request_body(index))]


def request_body(index: int) -> bytes:
    """Return the body of a request for the qdiscs or classes of one interface; the kernel gives all for 0."""
    return _TCMSG.pack(socket.AF_UNSPEC, index, 0, 0, 0)


def parse_statistic(payload: memoryview) -> Statistic:
    """Parse one message of a dump. Missing numbers become 0, a missing kind becomes empty."""
    _, index, handle, parent, _ = _TCMSG.unpack_from(payload)
    kind, wire_bytes, packets, backlog_bytes, drops = "", 0, 0, 0, 0
    for attribute, value in split_attributes(payload[_TCMSG.size :]):
        if attribute == _TCA_KIND:
            kind = bytes(value).rstrip(b"\0").decode()
        elif attribute == _TCA_STATS2:
            for nested, numbers in split_attributes(value):
                if nested == _TCA_STATS_BASIC:
                    wire_bytes, low_packets = _BASIC.unpack_from(numbers)
                    packets = packets or low_packets
                elif nested == _TCA_STATS_PKT64:
                    packets = _PACKETS.unpack_from(numbers)[0]
                elif nested == _TCA_STATS_QUEUE:
                    _, backlog_bytes, drops = _QUEUE.unpack_from(numbers)
    return Statistic(index, handle & 0xFFFF, parent & 0xFFFF, kind, wire_bytes, packets, backlog_bytes, drops)


class Counters(NamedTuple):
    """Counts since the port was created. ``packets`` is None if super-packets make the kernel's count meaningless."""

    wire_bytes: int
    packets: int | None
    backlog_bytes: int
    drops: int


@dataclass(frozen=True)
class PortCounters:
    """Counters of the port from one datacenter to another: in total, and for each (source, destination) node pair."""

    source: str
    destination: str
    total: Counters
    pairs: dict[tuple[str, str], Counters]


def port_counters(
    datacenter: str,
    port: WanPort,
    classes: Iterable[Statistic],
    qdiscs: Iterable[Statistic],
    senders: Collection[str] | None = None,
) -> PortCounters:
    """Return the counters of one WAN port from the statistics of its classes and of the netem leaves below them.

    ``senders`` are the sources whose pairs the port has classes for, by default all. Raise KeyError if a class of the
    port is missing.
    """
    drops = {qdisc.parent_minor: qdisc.drops for qdisc in qdiscs if qdisc.kind == "netem"}
    by_class = {
        each.minor: Counters(each.wire_bytes, each.packets, each.backlog_bytes, drops.get(each.minor, 0))
        for each in classes
    }
    pairs = {
        (source, destination): by_class[pair_class(row, column, len(port.destinations))]
        for row, source in enumerate(port.sources)
        if senders is None or source in senders
        for column, destination in enumerate(port.destinations)
    }
    trunk = by_class.pop(TRUNK_CLASS)
    total = Counters(
        trunk.wire_bytes,
        trunk.packets,
        sum(counters.backlog_bytes for counters in by_class.values()),
        sum(counters.drops for counters in by_class.values()),
    )
    return PortCounters(datacenter, port.peer, total, pairs)
