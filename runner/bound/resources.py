"""The limited resources of the network between two places, and the least time that bytes and rings take over them.

These are the resources of the simulator: across the WAN the cap of the node pair and the trunk of the two datacenters,
the port of the host where the bytes arrive, which WAN and LAN share, and the windows of the TCP connections.
Connections have at most ``connections x window`` in flight, and let as much out again in each round trip. So n bytes
take them at least ``(n / (connections x window) - 1)`` round trips. The window is the configured one, of which kernels
give a part. A link that changes counts with the least latency and the highest rates that it ever has.

In the all-reduce of P replicas each of P segments goes once around the ring while it is summed, and once more while the
sum is handed on. So every hop carries ``2 (P - 1)`` segments, and every segment makes ``2 (P - 1)`` hops one after the
other. In buckets that overlap with the last backward, the first bucket is summed no earlier than its part of that
backward has ended, and the last one no earlier than all of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from wanbed.runner.bound.pipeline_chains import BoundaryWay
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.placement import Pair, StagePlace
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.stage_rings import Ring, StageRings, ring_pairs
from wanbed.testbed.network.topology import Topology, at_best
from wanbed.workloads.transport.gloo_sum import gloo_cut


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource that bytes cross one after the other. ``free_bits`` pass at once.

    ``of_all_parts`` is whether all equal parts of a variant cross it, as they do a trunk, and not one of them.
    """

    name: str
    bits_per_ns: float
    free_bits: float = 0.0
    of_all_parts: bool = False

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
        self._found: dict[tuple[str | int, ...], Resource] = {}
        self._crossed: dict[tuple[int, int, int, int], tuple[Resource, ...]] = {}
        self._latencies_ns: dict[tuple[str, str], float] = {}
        self._rates_bps: dict[tuple[str, str], tuple[int | None, int | None]] = {}

    def latency_ns(self, ends: Pair) -> float:
        """Return the least one-way latency between two places. Jitter may shorten what is configured."""
        one, other = ends
        if one.host == other.host:
            return 0.0
        datacenters = one.datacenter, other.datacenter
        if datacenters not in self._latencies_ns:
            path = self._topology.path(*datacenters)
            self._latencies_ns[datacenters] = max(0.0, path.latency_ns - path.impairments.delay_spread_ns)
        return self._latencies_ns[datacenters]

    def between(self, ends: Pair) -> tuple[Resource, ...]:
        """Return the resources that a transfer between two places crosses, none on one host."""
        one, other = ends
        key = one.pipeline, one.stage, other.pipeline, other.stage
        found = self._crossed.get(key)
        if found is None:
            found = self._crossed[key] = tuple(self._on_the_way(ends))
        return found

    def of_each_kind(self, hops: Iterable[Pair]) -> list[Pair]:
        """Return the first of the hops of each kind. Those of one kind have the same latency, limits and buffers."""
        kinds: dict[tuple[object, ...], Pair] = {}
        for hop in hops:
            limits = [(each.bits_per_ns, each.free_bits) for each in self.between(hop)]
            kinds.setdefault((self.latency_ns(hop), self.buffered_bits(hop), *limits), hop)
        return list(kinds.values())

    def _on_the_way(self, ends: Pair) -> Iterator[Resource]:
        one, other = ends
        if one.host == other.host:
            return
        here, there = one.host.name, other.host.name
        if (windows := self._windows(ends)) is not None:
            yield windows
        if (rate_bps := self._topology.intra_rate_bps) is not None:
            yield self._limited(("port", there), f"port of {there}", rate_bps)
        trunk = one.datacenter, other.datacenter
        if trunk[0] != trunk[1]:
            if trunk not in self._rates_bps:
                path = self._topology.conditions(*trunk)
                self._rates_bps[trunk] = path.node_pair_rate_bps, path.rate_bps
            pair_bps, trunk_bps = self._rates_bps[trunk]
            if pair_bps is not None:
                yield self._limited(("pair", here, there), f"node pair {here} to {there}", pair_bps)
            if trunk_bps is not None:
                name = f"trunk {trunk[0]} to {trunk[1]}"
                yield self._limited(("trunk", *trunk), name, trunk_bps, of_all_parts=True)

    def buffered_bits(self, ends: Pair) -> float:
        """Return what a sender may leave in the send buffers of its connections: one window in each."""
        return 0.0 if self._window_bits is None else self._count(ends) * self._window_bits

    def way(self, ends: Pair, shares: "Iterable[tuple[Resource, float]]", microbatches: int) -> BoundaryWay:
        """Return the way between two places, given the bits of one transfer that cross each resource."""
        times = [(each.duration_ns(bits), each.duration_ns(microbatches * bits)) for each, bits in shares]
        once_ns, busy_ns = (max(column, default=0.0) for column in zip(*times, strict=True)) if times else (0.0, 0.0)
        return BoundaryWay(self.latency_ns(ends), once_ns, busy_ns)

    def _limited(self, key: tuple[str, ...], name: str, rate_bps: int, *, of_all_parts: bool = False) -> Resource:
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = Resource(name, rate_bps / 1e9, of_all_parts=of_all_parts)
        return found

    def _windows(self, ends: Pair) -> Resource | None:
        rtt_ns = self.latency_ns(ends) + self.latency_ns(ends[::-1])
        if self._window_bits is None or not rtt_ns:
            return None
        one, other = ends
        here, there = one.host.name, other.host.name
        count = self._count(ends)
        bits = count * self._window_bits
        key = "windows", one.pipeline, one.stage, other.pipeline, other.stage
        name = f"windows of {count} connection{'' if count == 1 else 's'} {here} to {there}"
        return self._found.setdefault(key, Resource(name, bits / rtt_ns, bits))

    def _count(self, ends: Pair) -> int:
        here, there = ends[0].host.name, ends[1].host.name
        return self._connections.get((here, there)) or self._connections.get((there, here)) or 1


@dataclass(frozen=True)
class RingTimes:
    """The least times of one stage's all-reduce in nanoseconds, and what each hop of the ring carries in an iteration.

    ``after_first_ns`` is counted from when the first replica has ended its computation, ``after_last_ns`` from when the
    last one has: it has to send all of its hop's bytes itself, and what it sends has to reach all the others.
    ``own_ns`` is from the end of computation to the end of the all-reduce of the same replica, the one that takes
    longest, or of a chain from when the last one has ended its computation to the end of that. ``loads`` are those hops
    with their bits. ``begins_before_ns`` is how long before the end of its replica's computation the all-reduce may
    begin.
    """

    after_first_ns: float = 0.0
    after_last_ns: float = 0.0
    own_ns: float = 0.0
    loads: tuple[tuple[Pair, float], ...] = ()
    begins_before_ns: float = 0.0


def ring_times(
    variant: PipelineVariant, resources: Resources, stage: int, last_backward_ns: float, parts: int = 1
) -> RingTimes:
    """Return the times of a stage's rings; 0 without gradients, and for an all-reduce of NCCL's.

    ``last_backward_ns`` is how long the last backward of a replica takes at most, of which buckets make use. Of a ring
    through so many equal ``parts`` the loads are those that arrive in the first part.
    """
    rings, sizes_bytes = variant.rings(stage), variant.buckets_bytes(stage)
    if not rings.levels or min(sizes_bytes) < variant.pipelines or variant.transport.is_nccl:
        # With fewer bytes than replicas some segments are empty, and nobody waits for those.
        return RingTimes()
    hidden_ns = last_backward_ns * (1 - 1 / len(sizes_bytes))
    if rings.butterfly is not None:
        return _butterfly_times(rings, resources, sizes_bytes, hidden_ns)
    if rings.chained:
        return _chain_times(rings, resources, sizes_bytes[0])
    if len(rings.levels) > 1:
        return _nested_times(rings, resources, sizes_bytes, hidden_ns)
    hops, replicas = rings.pairs, variant.pipelines
    segment_bytes = min(sizes_bytes) // replicas
    if variant.transport.is_gloo:
        # The largest one crosses each hop once less often than all others together.
        start, end = gloo_cut(sizes_bytes[0], 1, replicas).segments[0]
        segment_bytes = (sizes_bytes[0] - end + start) // (replicas - 1)
    bucket_bits = 8.0 * 2 * (replicas - 1) * segment_bytes
    hop_bits = len(sizes_bytes) * bucket_bits
    latencies_ns = [resources.latency_ns(hop) for hop in hops]
    twice_ns = 2 * sum(latencies_ns)
    around_ns = [twice_ns - latencies_ns[at - 1] - latencies_ns[at - 2] for at in range(replicas)]
    arriving = [hop for hop in hops if hop[1].pipeline < replicas // parts]
    unlike = resources.of_each_kind(arriving)

    def busy_ns(bits: float) -> list[float]:
        return [max((each.duration_ns(bits) for each in resources.between(hop)), default=0.0) for hop in unlike]

    def arrived_ns(bits: float) -> float:
        return max(busy + resources.latency_ns(hop) for busy, hop in zip(busy_ns(bits), unlike, strict=True))

    return RingTimes(
        max(arrived_ns(hop_bits) - hidden_ns, arrived_ns(bucket_bits), *around_ns),
        max(min(busy_ns(hop_bits)) - hidden_ns, min(busy_ns(bucket_bits)), min(around_ns)),
        _own_ns(resources, [(hop, hop_bits) for hop in unlike], hidden_ns),
        tuple((hop, hop_bits) for hop in arriving),
        hidden_ns,
    )


def _butterfly_times(
    rings: StageRings, resources: Resources, sizes_bytes: Sequence[int], hidden_ns: float
) -> RingTimes:
    """Return the times of a butterfly: each hop carries a part there and the sum of another one.

    What a replica gives comes back to it over the way to each other one and the way back.
    """
    assert rings.butterfly is not None
    bucket_bits = 8.0 * 2 * (min(sizes_bytes) // rings.butterfly)
    hop_bits = len(sizes_bytes) * bucket_bits
    loads = tuple((hop, hop_bits) for hop in rings.pairs)
    latencies_ns = {hop: resources.latency_ns(hop) for hop in rings.pairs}

    def busy_ns(hop: Pair, bits: float) -> float:
        return max((each.duration_ns(bits) for each in resources.between(hop)), default=0.0)

    def sent_ns(hop: Pair) -> float:
        latency_ns = latencies_ns[hop]
        hidden = max(busy_ns(hop, hop_bits) - hidden_ns, busy_ns(hop, bucket_bits))
        return max(hidden + latency_ns, latency_ns + latencies_ns[hop[::-1]])

    by_sender: dict[StagePlace, float] = {}
    for hop in rings.pairs:
        by_sender[hop[0]] = max(by_sender.get(hop[0], 0.0), sent_ns(hop))
    every_ns = by_sender.values()
    return RingTimes(max(every_ns), min(every_ns), _own_ns(resources, loads, hidden_ns), loads, hidden_ns)


def _chain_times(rings: StageRings, resources: Resources, size_bytes: int) -> RingTimes:
    """Return the times of a reduce to the first replica and of a broadcast from it, one after the other.

    The reduce begins when all are ready but the first; if that is the last one, only the broadcast follows. The first
    replica has its own result when all but a window of what it sends has left it.
    """
    bits = 8.0 * size_bytes
    hops = rings.pairs

    def along_ns(way: Sequence[Pair]) -> float:
        slowest = max((each.duration_ns(bits) for hop in way for each in resources.between(hop)), default=0.0)
        return slowest + sum(map(resources.latency_ns, way))

    reduce_ns, broadcast_ns = along_ns(hops[1:]), along_ns(hops[:-1])
    left_bits = max(0.0, bits - resources.buffered_bits(hops[0]))
    root_ns = max((each.duration_ns(left_bits) for each in resources.between(hops[0])), default=0.0)
    loads = tuple((hop, count * bits) for hop, count in rings.hop_passes())
    return RingTimes(reduce_ns + max(broadcast_ns, root_ns), min(root_ns, along_ns(hops[:1])), broadcast_ns, loads)


def _nested_times(rings: StageRings, resources: Resources, sizes_bytes: Sequence[int], hidden_ns: float) -> RingTimes:
    """Return the times of rings inside datacenters and across, whose passes follow each other at every replica."""
    inside, across = rings.sizes
    segment_bytes, buckets = min(sizes_bytes) // inside, len(sizes_bytes)
    inside_bits, across_bits = 8.0 * (inside - 1) * segment_bytes, 8.0 * 2 * (across - 1) * (segment_bytes // across)
    within = _pass_times([_ring_pass(ring, resources, inside_bits, 1) for ring in rings.levels[0]])
    between = _pass_times([_ring_pass(ring, resources, across_bits, 2) for ring in rings.levels[1]])
    every_ns = 2 * within.every_ns + between.every_ns
    after_first_ns = max(
        within.first_ns + between.last_ns + within.last_ns,
        within.every_ns + between.first_ns + within.last_ns,
        within.every_ns + between.every_ns + within.first_ns,
    )
    after_last_ns = 2 * within.last_ns + between.last_ns
    before_ns = max(0.0, (buckets - 1) * every_ns - hidden_ns)
    loads = [(hop, 2 * buckets * inside_bits) for ring in rings.levels[0] for hop in ring_pairs(ring)]
    loads += [(hop, buckets * across_bits) for ring in rings.levels[1] for hop in ring_pairs(ring)]
    own_ns = _own_ns(resources, loads, hidden_ns)
    return RingTimes(after_first_ns + before_ns, after_last_ns + before_ns, own_ns, tuple(loads), hidden_ns)


def _own_ns(resources: Resources, loads: Sequence[tuple[Pair, float]], hidden_ns: float) -> float:
    """Return how long the replica of the slowest hop sends, after its computation.

    It ends with what it sends last in its send buffers, which hold a window of each connection. Half of it at least has
    been sent: it has come back around the ring, summed.
    """
    sent_ns = 0.0
    for hop, bits in loads:
        left_bits = max(bits / 2, bits - resources.buffered_bits(hop))
        sent_ns = max(sent_ns, *(each.duration_ns(left_bits) for each in resources.between(hop)), 0.0)
    return max(0.0, sent_ns - hidden_ns)


@dataclass(frozen=True)
class _PassTimes:
    """The least times of one pass of a ring, or of one of several rings.

    ``first_ns`` is from when all may begin until one replica has ended, ``every_ns`` until any of them has. ``last_ns``
    is from when any replica, the last one, begins until one has ended.
    """

    first_ns: float
    every_ns: float
    last_ns: float


def _pass_times(rings: Sequence[_PassTimes]) -> _PassTimes:
    return _PassTimes(
        max(ring.first_ns for ring in rings),
        min(ring.every_ns for ring in rings),
        min(ring.last_ns for ring in rings),
    )


def _ring_pass(ring: Ring, resources: Resources, bits: float, rounds: int) -> _PassTimes:
    """Return the times of a pass in which each hop carries ``bits``, and a segment goes ``rounds`` times around.

    In each round it makes all hops but one.
    """
    hops = ring_pairs(ring)
    latencies_ns = [resources.latency_ns(hop) for hop in hops]
    sent_ns = [
        max((each.duration_ns(bits) for each in resources.between(hop)), default=0.0) + latency_ns
        for hop, latency_ns in zip(hops, latencies_ns, strict=True)
    ]
    replicas, around_ns = len(hops), rounds * sum(latencies_ns)
    from_ns = [around_ns - sum(latencies_ns[at - back] for back in range(1, rounds + 1)) for at in range(replicas)]
    # What begins at a position ends as many before it as there are rounds.
    to_ns = [max(sent_ns[at - 1], from_ns[(at + rounds) % replicas]) for at in range(replicas)]
    return _PassTimes(max(to_ns), min(to_ns), min(max(sent, path) for sent, path in zip(sent_ns, from_ns, strict=True)))
