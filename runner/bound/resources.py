"""The limited resources of the network between two places, and the least time that bytes take over them.

These are the resources of the simulator: across the WAN the cap of the node pair and the trunk of the two datacenters,
the port of the host where the bytes arrive, which WAN and LAN share, and the windows of the TCP connections.
Connections have at most ``connections x window`` in flight, and let as much out again in each round trip. So n bytes
take them at least ``(n / (connections x window) - 1)`` round trips. The window is the configured one, of which kernels
give a part. A link that changes counts with the least latency and the highest rates that it ever has.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wanbed.runner.bound.pipeline_chains import BoundaryWay
from wanbed.runner.resolve.placement import Pair
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.testbed.network.course_extremes import at_best
from wanbed.testbed.network.topology import Topology


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource that bytes cross one after the other. ``free_bits`` pass at once."""

    name: str
    bits_per_ns: float
    free_bits: float = 0.0

    def duration_ns(self, bits: float) -> float:
        """Return the least time that so many bits take."""
        return max(0.0, bits - self.free_bits) / self.bits_per_ns


class Resources:
    """The resources on the way from one place to another."""

    def __init__(
        self, topology: Topology, variant: ResolvedVariant, connections: Mapping[tuple[str, str], int]
    ) -> None:
        self._topology, self._connections = at_best(topology), connections
        self._window_bits = None if variant.transport.model == "ideal" else 8.0 * variant.transport.window
        self._found: dict[tuple[str, ...], Resource] = {}

    def latency_ns(self, ends: Pair) -> float:
        """Return the least one-way latency between two places. Jitter may shorten what is configured."""
        one, other = ends
        if one.host == other.host:
            return 0.0
        path = self._topology.path(one.datacenter, other.datacenter)
        return max(0.0, path.latency_ns - path.impairments.delay_spread_ns)

    def between(self, ends: Pair) -> tuple[Resource, ...]:
        """Return the resources that a transfer between two places crosses, none on one host."""
        one, other = ends
        if one.host == other.host:
            return ()
        here, there = one.host.name, other.host.name
        found = [self._windows(ends)]
        if (rate_bps := self._topology.intra_rate_bps) is not None:
            found.append(self._limited(("port", there), f"port of {there}", rate_bps))
        if one.datacenter != other.datacenter:
            path = self._topology.conditions(one.datacenter, other.datacenter)
            if path.node_pair_rate_bps is not None:
                found.append(
                    self._limited(("pair", here, there), f"node pair {here} to {there}", path.node_pair_rate_bps)
                )
            if path.rate_bps is not None:
                trunk = one.datacenter, other.datacenter
                found.append(self._limited(("trunk", *trunk), f"trunk {trunk[0]} to {trunk[1]}", path.rate_bps))
        return tuple(each for each in found if each is not None)

    def buffered_bits(self, ends: Pair) -> float:
        """Return what a sender may leave in the send buffers of its connections: one window in each."""
        return 0.0 if self._window_bits is None else self._count(ends) * self._window_bits

    def way(self, ends: Pair, shares: "Iterable[tuple[Resource, float]]", microbatches: int) -> BoundaryWay:
        """Return the way between two places, given the bits of one transfer that cross each resource."""
        times = [(each.duration_ns(bits), each.duration_ns(microbatches * bits)) for each, bits in shares]
        once_ns, busy_ns = (max(column, default=0.0) for column in zip(*times, strict=True)) if times else (0.0, 0.0)
        return BoundaryWay(self.latency_ns(ends), once_ns, busy_ns)

    def _limited(self, key: tuple[str, ...], name: str, rate_bps: int) -> Resource:
        return self._found.setdefault(key, Resource(name, rate_bps / 1e9))

    def _windows(self, ends: Pair) -> Resource | None:
        rtt_ns = self.latency_ns(ends) + self.latency_ns(ends[::-1])
        if self._window_bits is None or not rtt_ns:
            return None
        here, there = (place.host.name for place in ends)
        count = self._count(ends)
        bits = count * self._window_bits
        key = "windows", *(str(number) for place in ends for number in (place.pipeline, place.stage))
        name = f"windows of {count} connection{'' if count == 1 else 's'} {here} to {there}"
        return self._found.setdefault(key, Resource(name, bits / rtt_ns, bits))

    def _count(self, ends: Pair) -> int:
        here, there = (place.host.name for place in ends)
        return self._connections.get((here, there)) or self._connections.get((there, here)) or 1
