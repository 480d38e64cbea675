"""Simulate the rings over which the replicas of each stage all-reduce their gradients."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from runner.simulator.event_queue import EventQueue
from runner.simulator.network.network import Ends, Network
from runner.simulator.network.wan_traffic import Crossing
from runner.simulator.rings.ring_all_reduce import RingCut, all_reduce_ends_ns
from runner.simulator.rings.shared_ring import Done, SharedRing
from runner.simulator.rings.sparse_ring import SparseRing
from runner.tcp.channel import Channel, PrivateChannel


class Ring(Protocol):
    """The ring of one stage."""

    def join(self, iteration: int, position: int, now_ns: int, done: Done) -> None:
        """Handle that the replica at ``position`` of the ring is ready. Call ``done`` when its result is known.

        ``iteration`` counts the all-reduces: there may be several in an iteration, or some under way at once.
        """


def ring_ends(network: Network) -> dict[int, list[Ends]]:
    """Return the two places of each hop of each stage's ring, from each replica of the first equal part to the next.

    Stages without gradients are left out. With a single replica there are no rings.
    """
    variant = network.variant
    simulated = variant.pipelines // network.equal_parts
    found: dict[int, list[Ends]] = {}
    for stage in range(variant.placement.stages):
        pairs = variant.placement.ring_pairs(stage)
        if pairs and variant.work.gradient_bytes[stage]:
            found[stage] = list(pairs[:simulated])
    return found


def ring_cut(network: Network, stage: int) -> tuple[int, RingCut]:
    """Return the size of what a stage's ring all-reduces at once, in bytes, and how it is cut."""
    variant = network.variant
    connections = variant.placement.ring_connections(stage, network.connections)
    # Buckets differ by a byte at most, and follow each other over the same channels.
    size_bytes = max(variant.buckets_bytes(stage))
    return size_bytes, RingCut.of(size_bytes, variant.pipelines, connections)


class Rings:
    """The rings of all stages: one for each stage, of all its replicas.

    A ring that shares no resource is computed at once, and so is that of a stage in ``apart``, for which ``channels``
    has none; any other one is simulated event by event. Where only one of several equal parts is simulated, its
    replicas represent those at the same positions of the other parts.
    """

    def __init__(
        self,
        network: Network,
        channels: Mapping[Ends, Channel],
        events: EventQueue,
        apart: Collection[int] = (),
    ) -> None:
        self.apart: dict[int, PrivateRing] = {}
        self._rings: dict[int, Ring] = {}
        self._positions: dict[int, dict[int, int]] = {}
        self._crossing: list[Crossing] = []
        self._private: list[PrivateRing] = []
        for stage, ends in ring_ends(network).items():
            self._positions[stage] = {one.pipeline: position for position, (one, _) in enumerate(ends)}
            size_bytes, cut = ring_cut(network, stage)
            if stage in apart:
                self._rings[stage] = self.apart[stage] = PrivateRing(network, ends, cut)
                continue
            own = [channels[pair] for pair in ends]
            ring = self._rings[stage] = create_ring(
                network, ends, own, events, cut=cut, size_bytes=size_bytes, alone=True
            )
            if isinstance(ring, PrivateRing):
                self._private.append(ring)
            else:
                self._crossing += zip(ends, own, strict=True)

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
    network: Network,
    ends: Sequence[Ends],
    channels: Sequence[Channel],
    events: EventQueue,
    *,
    cut: RingCut,
    size_bytes: int,
    alone: bool,
) -> Ring:
    """Return a ring over ``ends`` that all-reduces ``size_bytes``, cut as ``cut``.

    A ``PrivateRing`` makes its own channels; any other one uses ``channels``. ``alone`` is whether nothing else does.
    """
    if size_bytes < cut.replicas:
        return SparseRing(channels, size_bytes, events)
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

    def __init__(self, network: Network, ends: Sequence[Ends], cut: RingCut) -> None:
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
        """Do as ``Ring.join`` says. ``done`` of all replicas is called when the last one joins."""
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
