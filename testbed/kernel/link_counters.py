"""Compute the cumulative counters of WAN ports and node pairs from the statistics of their qdiscs.

Bytes and packets are those that a class let through: wire bytes at the Ethernet layer, without preamble and gap. The
backlog is what its netem leaf holds, in flight or queued. Drops are netem's: loss and overflow together.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from wanbed.testbed.kernel.qdiscs.port_shape import TRUNK_CLASS
from wanbed.testbed.kernel.qdiscs.statistics import Statistic
from wanbed.testbed.network.gateway_plan import WanPort, pair_class


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
