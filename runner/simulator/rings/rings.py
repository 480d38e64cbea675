"""Simulate the rings over which the replicas of each stage all-reduce their gradients."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from wanbed.flow.channel import Channel, PrivateChannel
from wanbed.flow.event_queue import EventQueue
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.stage_rings import most_connections, ring_pairs
from wanbed.runner.simulator.channels.network import Ends, Network
from wanbed.runner.simulator.channels.packet_channel import PacketChannel
from wanbed.runner.simulator.channels.wan_traffic import Crossing
from wanbed.runner.simulator.rings.butterfly import Butterfly, ButterflyCut
from wanbed.runner.simulator.rings.chain import Chain, ChainCut
from wanbed.runner.simulator.rings.chunked_ring import ChunkedRing
from wanbed.runner.simulator.rings.gloo_ring import GlooRing
from wanbed.runner.simulator.rings.ring import NestedRing, Ring
from wanbed.runner.simulator.rings.ring_all_reduce import Done, RingCut, SharedRing, SparseRing, all_reduce_ends_ns
from wanbed.workloads.transport.frame import HEADER_BYTES

_Hops = tuple[Ends, ...]
"""The two places of each hop of a ring, from each replica to the next."""


def _ring_levels(network: Network[PipelineVariant]) -> dict[int, tuple[tuple[_Hops, ...], ...]]:
    """Return the rings of each stage, level by level, as ``StageRings`` has them.

    Stages without gradients are left out. With a single replica there are no rings. Where only one of several equal
    parts is simulated, the single ring has the hops of its replicas.
    """
    variant = network.variant
    simulated = variant.pipelines // network.equal_parts
    found = {}
    for stage in range(variant.placement.stages):
        levels = variant.rings(stage).levels
        if levels and variant.work.gradient_bytes[stage]:
            found[stage] = tuple(tuple(ring_pairs(ring)[:simulated] for ring in level) for level in levels)
    return found


def ring_ends(network: Network[PipelineVariant]) -> dict[int, list[Ends]]:
    """Return the two places of each hop of all rings of each stage that has gradients and replicas."""
    return {
        stage: [pair for level in levels for ring in level for pair in ring]
        for stage, levels in _ring_levels(network).items()
    }


def ring_cut(network: Network[PipelineVariant], stage: int, level: int = 0, number: int = 0) -> tuple[int, RingCut]:
    """Return the size of what a ring of a stage all-reduces at once, in bytes, and how it is cut."""
    variant, rings = network.variant, network.variant.rings(stage)
    connections = most_connections(ring_pairs(rings.levels[level][number]), network.connections)
    # Buckets differ by a byte at most, and follow each other over the same channels.
    size_bytes = rings.summed_bytes(max(variant.buckets_bytes(stage)))[level]
    halved = level + 1 < len(rings.levels)
    piece_bytes = variant.transport.piece_bytes
    return size_bytes, RingCut.of(size_bytes, rings.sizes[level], connections, piece_bytes=piece_bytes, halved=halved)


class Rings:
    """The rings of all stages: one of all replicas of each stage, or several where its all-reduce is hierarchical.

    A butterfly stands for the rings of two that it consists of, a chain for the ring along which it lies.

    A ring that shares no resource is computed at once, and so is that of a stage in ``apart``, for which ``channels``
    has none; any other one is simulated event by event. Where only one of several equal parts is simulated, its
    replicas represent those at the same positions of the other parts.
    """

    def __init__(
        self,
        network: Network[PipelineVariant],
        channels: Mapping[Ends, Channel],
        events: EventQueue,
        apart: Collection[int] = (),
    ) -> None:
        self.apart: dict[int, PrivateRing] = {}
        self._rings: dict[int, Ring] = {}
        self._positions: dict[int, dict[int, int]] = {}
        self._crossing: list[Crossing] = []
        self._private: list[PrivateRing] = []
        self._network, self._channels, self._events = network, channels, events
        for stage, levels in _ring_levels(network).items():
            variant_rings = network.variant.rings(stage)
            replicas = dict.fromkeys(one.pipeline for hops in levels[0] for one, _ in hops)
            self._positions[stage] = {pipeline: position for position, pipeline in enumerate(replicas)}
            if variant_rings.butterfly is not None:
                self._rings[stage] = self._butterfly(stage, variant_rings.pairs)
                continue
            if variant_rings.chained:
                self._rings[stage] = self._chain(stage, variant_rings.pairs)
                continue
            if network.variant.transport.is_gloo:
                self._rings[stage] = self._gloo(stage, variant_rings.pairs)
                continue
            if stage in apart:
                self._rings[stage] = self.apart[stage] = PrivateRing(network, levels[0][0], ring_cut(network, stage)[1])
                continue
            made = [
                [self._ring(stage, level, number, hops) for number, hops in enumerate(rings)]
                for level, rings in enumerate(levels)
            ]
            self._rings[stage] = made[0][0] if len(made) == 1 else NestedRing(made[0], made[1], events)

    def _ring(self, stage: int, level: int, number: int, hops: _Hops) -> Ring:
        size_bytes, cut = ring_cut(self._network, stage, level, number)
        own = [self._channels[pair] for pair in hops]
        ring = create_ring(
            self._network,
            hops,
            own,
            self._events,
            backs=[self._channels.get(pair[::-1]) for pair in hops],
            cut=cut,
            size_bytes=size_bytes,
            alone=not self._network.variant.norm_ring,
        )
        if isinstance(ring, PrivateRing):
            self._private.append(ring)
        else:
            self._crossing += zip(hops, own, strict=True)
        return ring

    def _butterfly(self, stage: int, pairs: Sequence[Ends]) -> Ring:
        network, positions = self._network, self._positions[stage]
        ways = {(positions[one.pipeline], positions[other.pipeline]): (one, other) for one, other in pairs}
        channels = {way: self._channels[ends] for way, ends in ways.items()}
        connections = {way: network.connections_between(ends) for way, ends in ways.items()}
        size_bytes = max(network.variant.buckets_bytes(stage))
        followed = any(isinstance(channel, PacketChannel) for channel in channels.values())
        cut = ButterflyCut.of(
            size_bytes,
            len(positions),
            max(connections.values()),
            piece_bytes=network.variant.transport.piece_bytes,
            header_bytes=HEADER_BYTES if followed else None,
        )
        self._crossing += ((ends, channels[way]) for way, ends in ways.items())
        return Butterfly(channels, connections, cut, self._events)

    def _chain(self, stage: int, hops: Sequence[Ends]) -> Ring:
        network, channels = self._network, [self._channels[ends] for ends in hops]
        connections = [network.connections_between(ends) for ends in hops]
        followed = any(isinstance(channel, PacketChannel) for channel in channels)
        size_bytes = max(network.variant.buckets_bytes(stage))
        cut = ChainCut.of(
            size_bytes,
            max(connections),
            piece_bytes=network.variant.transport.piece_bytes,
            header_bytes=HEADER_BYTES if followed else None,
        )
        self._crossing += zip(hops, channels, strict=True)
        return Chain(channels, connections, cut, self._events)

    def _gloo(self, stage: int, hops: Sequence[Ends]) -> Ring:
        network, channels = self._network, [self._channels[ends] for ends in hops]
        connections = [network.connections_between(ends) for ends in hops]
        backs = [self._channels.get(ends[::-1]) for ends in hops]
        self._crossing += zip(hops, channels, strict=True)
        return GlooRing(channels, connections, max(network.variant.buckets_bytes(stage)), self._events, backs)

    def has_gradients(self, stage: int) -> bool:
        """Return whether the replicas of ``stage`` have gradients to all-reduce."""
        return stage in self._rings

    def join(self, stage: int, iteration: int, pipeline: int, now_ns: int, done: Done) -> None:
        """Handle that the replica of ``stage`` in ``pipeline`` is ready. Call ``done`` when its result is known."""
        self._rings[stage].join(iteration, self._positions[stage][pipeline], now_ns, done)

    def crossed(self) -> list[Crossing]:
        """Return the channels over the WAN that have carried traffic, each with its ends."""
        every = [*self._crossing, *(crossing for ring in self._private for crossing in ring.crossed())]
        return [
            (pair, channel) for pair, channel in every if pair[0].datacenter != pair[1].datacenter and channel.history
        ]


def create_ring(
    network: Network[Any],
    ends: Sequence[Ends],
    channels: Sequence[Channel],
    events: EventQueue,
    *,
    backs: Sequence[Channel | None],
    cut: RingCut,
    size_bytes: int,
    alone: bool,
) -> Ring:
    """Return a ring over ``ends`` for ``size_bytes``, cut as ``cut``.

    A ``PrivateRing`` makes its own channels; any other one uses ``channels``. ``alone`` is whether nothing else does.
    ``backs`` are the channels of the other direction, where there are any.
    """
    if size_bytes < cut.replicas:
        return SparseRing(channels, size_bytes, cut.steps, events)
    if any(isinstance(channel, PacketChannel) for channel in channels):
        return ChunkedRing(channels, size_bytes, cut, events, backs)
    shared = SharedRing(channels, [network.connections_between(pair) for pair in ends], cut, events)
    if alone and all(isinstance(channel, PrivateChannel) for channel in channels) and not shared.awaits_room:
        return PrivateRing(network, ends, cut)
    return shared


class PrivateRing:
    """A ring over channels that carry nothing else.

    Where lines and start times repeat after some positions, only one period is computed, so the cost of a large ring
    of equal replicas depends on its steps alone. A ring that crosses the WAN is computed as a whole, because the
    traffic of every channel is needed.

    ``under_way`` has, for each all-reduce, when each position was ready and when it had the result.
    """

    def __init__(self, network: Network[Any], ends: Sequence[Ends], cut: RingCut) -> None:
        self._network = network
        self._ends = ends
        self._cut = cut
        self._connections = [network.connections_between(pair) for pair in ends]
        self._lines = [network.line(pair) for pair in ends]
        self._crosses_wan = any(one.datacenter != other.datacenter for one, other in ends)
        self._channels: list[PrivateChannel] = []
        self._waiting: dict[int, dict[int, tuple[int, Done]]] = {}
        self.under_way: list[tuple[list[int], list[int]]] = []

    def join(self, iteration: int, position: int, now_ns: int, done: Done) -> None:
        """Join as in any ``Ring``. ``done`` of all replicas is called when the last one joins."""
        waiting = self._waiting.setdefault(iteration, {})
        waiting[position] = now_ns, done
        if len(waiting) < len(self._ends):
            return
        del self._waiting[iteration]
        ready_ns = [waiting[each][0] for each in range(len(self._ends))]
        period = self._period(ready_ns)
        self._grow(period)
        ends_ns = all_reduce_ends_ns(ready_ns[:period], self._channels[:period], self._cut, self._connections[:period])
        ends_ns *= len(ready_ns) // period
        self.under_way.append((ready_ns, ends_ns))
        for each, start_ns in enumerate(ready_ns):
            waiting[each][1](start_ns, ends_ns[each])

    def crossed(self) -> list[Crossing]:
        """Return the ring's channels, each with its ends."""
        return list(zip(self._ends, self._channels, strict=False))

    def _period(self, ready_ns: Sequence[int]) -> int:
        """Return after how many positions everything repeats. This is a multiple of the previous period."""
        replicas, before = len(ready_ns), len(self._channels) or 1
        if self._crosses_wan:
            return replicas
        alike = [*zip(ready_ns, self._lines, self._connections, strict=True)]
        return next(
            period
            for period in range(before, replicas + 1, before)
            if replicas % period == 0 and alike[period:] == alike[:-period]
        )

    def _grow(self, period: int) -> None:
        """Give each of the first ``period`` positions its own channel, in the state of the one that represented it."""
        if not self._channels:
            pairs = self._ends[:period]
            self._channels = [
                PrivateChannel(self._network.line(pair), self._network.window(pair), keeps_history=self._crosses_wan)
                for pair in pairs
            ]
        before = list(self._channels)
        while len(self._channels) < period:
            self._channels += [channel.copied() for channel in before]
