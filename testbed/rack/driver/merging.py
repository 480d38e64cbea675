"""Merge what several machines read of one network."""

from collections.abc import Iterable, Sequence
from functools import reduce

from wanbed.testbed.kernel.link_counters import Counters, PortCounters

_NONE = Counters(0, 0, 0, 0)


def merged_counters(readings: Iterable[Sequence[PortCounters]]) -> list[PortCounters]:
    """Return the counters of each trunk, of which every machine of the sending datacenter has a part.

    Trunks are in the order in which they first appear.
    """
    parts: dict[tuple[str, str], list[PortCounters]] = {}
    for ports in readings:
        for port in ports:
            parts.setdefault((port.source, port.destination), []).append(port)
    return [
        PortCounters(
            *ends,
            reduce(_added, (port.total for port in ports)),
            {
                pair: reduce(_added, (port.pairs.get(pair, _NONE) for port in ports))
                for pair in dict.fromkeys(pair for port in ports for pair in port.pairs)
            },
        )
        for ends, ports in parts.items()
    ]


def _added(one: Counters, other: Counters) -> Counters:
    packets = None if one.packets is None or other.packets is None else one.packets + other.packets
    return Counters(
        one.wire_bytes + other.wire_bytes,
        packets,
        one.backlog_bytes + other.backlog_bytes,
        one.drops + other.drops,
    )
