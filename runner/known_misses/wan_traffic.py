"""Describe what a variant sends over the WAN where simulations may be off: connections, windows, trunks, rings."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from wanbed.runner.resolve.connection_count import count_connections
from wanbed.runner.resolve.packet_draws import draws_packets
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.placement import Pair
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.stage_rings import ring_pairs
from wanbed.runner.simulator.segments.validated_range import beyond, cubic_beyond
from wanbed.runner.trainings.trace.resolution.trace_variant import TraceVariant
from wanbed.testbed.network.topology import Topology


@dataclass(frozen=True)
class WanTraffic:
    """The traffic of a variant, and of all that runs beside it, over the WAN of a topology."""

    topology: Topology
    variant: ResolvedVariant

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """The places that the variant joins across the WAN."""
        return _across(self.variant.pairs)

    @cached_property
    def _connections(self) -> dict[tuple[str, str], int]:
        return count_connections(self.topology, self.pairs, self.variant.transport)

    @cached_property
    def connections(self) -> int:
        """The most TCP connections between two hosts across the WAN, 0 without any."""
        return max(self._connections.values(), default=0)

    @cached_property
    def window_over_line(self) -> float:
        """The largest ratio of what a node pair's windows have in flight to what its line holds, rate x RTT.

        0 without a limited rate: then windows alone are the limit.
        """
        ratios = [0.0]
        for one, other in self.pairs:
            in_flight = self._connections[one.host.name, other.host.name] * self.variant.tcp.window_bytes
            for ends in ((one.datacenter, other.datacenter), (other.datacenter, one.datacenter)):
                held = self.topology.pair_in_flight_bytes(*ends)
                ratios += [in_flight / held] if held else []
        return max(ratios)

    @cached_property
    def transfer_over_line(self) -> tuple[float, ...]:
        """The ratio of each transfer over a WAN boundary, activation or gradient, to what its node pair's line holds.

        With temporal sharing a node pair carries its part of a transfer. () without a limited rate.
        """
        if not isinstance(self.variant, PipelineVariant):
            return ()
        sizes = _crossing_bytes(self.variant)
        held = {
            ends: bytes_held
            for one, other in self.pairs
            for ends in ((one.datacenter, other.datacenter), (other.datacenter, one.datacenter))
            if (bytes_held := self.topology.pair_in_flight_bytes(*ends))
        }
        return tuple(size / self.variant.pipelines_per_cell / each for size in sizes for each in held.values())

    @cached_property
    def fills_a_trunk(self) -> bool:
        """Whether the variant's node pairs together can send more over a trunk than it carries, at any time."""
        return self._fills((self.variant,))

    @cached_property
    def fills_a_trunk_with_others(self) -> bool:
        """Whether it can together with the variants of other jobs that run beside it."""
        return bool(self.variant.beside) and self._fills((self.variant, *self.variant.beside))

    def _fills(self, at_once: Iterable[ResolvedVariant]) -> bool:
        asked = Counter(each for variant in at_once for each in _asked_bps(self.topology, variant))
        for link in self.topology.wan:
            for ends, _ in link.directions:
                own = [(windows_bps, count) for (way, windows_bps), count in asked.items() if way == ends]
                for conditions in self.topology.ever(*ends):
                    trunk_bps, pair_bps = conditions.rate_bps, conditions.pair_rate_bps
                    if trunk_bps is None or pair_bps is None:
                        continue
                    if sum(min(windows_bps, pair_bps) * count for windows_bps, count in own) > trunk_bps:
                        return True
        return False

    @cached_property
    def rings_cross(self) -> bool:
        """Whether a ring that sums more than a byte a replica crosses the WAN."""
        return any(_across(pairs) for pairs in _rings(self.variant))

    @property
    def is_drawn_as_compared(self) -> bool:
        """Whether losses or jitter are drawn, packet by packet, and all within what was compared with virtual time.

        A trial beyond that is reported as not modelled.
        """
        if not draws_packets(self.topology, self.variant.transport):
            return False
        several = self.variant.transport.connections != 1
        is_cubic = self.variant.transport.congestion == "cubic"
        ways = [conditions for link in self.topology.wan for _, conditions in link.directions]
        return not any(
            any(beyond(conditions)) or (is_cubic and any(cubic_beyond(conditions, several=several)))
            for conditions in ways
        )

    @property
    def has_background(self) -> bool:
        """Whether flows that train nothing share the WAN with it."""
        return bool(self.variant.background)

    @property
    def breaks(self) -> bool:
        """Whether a link is down at any time of the trial."""
        return any(
            not conditions.up
            for link in self.topology.wan
            for ends, _ in link.directions
            for conditions in self.topology.ever(*ends)
        )


def _across(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    return tuple(pair for pair in pairs if pair[0].datacenter != pair[1].datacenter)


def _asked_bps(topology: Topology, variant: ResolvedVariant) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield the directed datacenters of each node pair across the WAN, and what its windows let it send."""
    pairs = _across(variant.pairs)
    counts = count_connections(topology, pairs, variant.transport)
    hosts: Counter[tuple[str, str]] = Counter()
    for one, other in pairs:
        names = one.host.name, other.host.name
        hosts[names] += 1
        if hosts[names] > 1:
            # Stages that share two hosts share their node pair.
            continue
        rtt_ns = topology.rtt_ns(one.datacenter, other.datacenter)
        in_flight_bits = counts[names] * variant.tcp.window_bytes * 8
        windows_bps = in_flight_bits * 1e9 / rtt_ns if rtt_ns else float("inf")
        yield (one.datacenter, other.datacenter), windows_bps
        yield (other.datacenter, one.datacenter), windows_bps


def _crossing_bytes(variant: PipelineVariant) -> tuple[int, ...]:
    """Return the size of each transfer over a WAN boundary."""
    placement, sizes = variant.placement, variant.work.activation_bytes
    if variant.layout.chunks > 1:
        # Which messages cross is not told by boundaries between stages.
        return tuple(sizes)
    return tuple(size for boundary, size in enumerate(sizes[: placement.stages - 1]) if placement.crosses_wan(boundary))


def _rings(variant: ResolvedVariant) -> Iterator[tuple[Pair, ...]]:
    """Yield the neighbours of each ring that sums more than a byte a replica."""
    if isinstance(variant, TraceVariant):
        yield from variant.rings
    if not isinstance(variant, PipelineVariant) or variant.is_star:
        return
    for stage in range(variant.placement.stages):
        if max(variant.buckets_bytes(stage), default=0) > variant.pipelines:
            yield from (tuple(ring_pairs(ring)) for ring in variant.rings(stage).rings)
