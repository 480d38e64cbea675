"""The channels and rings over which the ranks of a trace send."""

from collections import Counter

from wanbed.runner.simulator.channels.network import Ends, Network
from wanbed.runner.simulator.channels.transfers import Arrived, OwnTransfers
from wanbed.runner.simulator.channels.wan_traffic import Crossing
from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.rings.ring import Ring
from wanbed.runner.simulator.rings.ring_all_reduce import Done, RingCut
from wanbed.runner.simulator.rings.rings import PrivateRing, create_ring
from wanbed.runner.trainings.trace.resolution.trace_variant import TraceVariant
from wanbed.testbed.network.flow_model.striping import Striping
from wanbed.workloads.trace.replayed_trace import ReplayedTrace, TraceNode, WorkKind
from wanbed.workloads.trace.ring_collective import RingCollective
from wanbed.workloads.transport.frames.cutting import Cutting
from wanbed.workloads.transport.frames.frame import HEADER_BYTES


class TraceNetwork:
    """Carries the messages and collectives of a variant that replays ``trace``.

    Everything from one rank to another goes over one channel, in the order in which it is sent. The collectives of a
    group that are alike share a ring.
    """

    def __init__(self, network: Network[TraceVariant], trace: ReplayedTrace, events: EventQueue) -> None:
        self._network, self._trace, self._events = network, trace, events
        variant = network.variant
        self._places = variant.placement.places
        self._collectives = _collectives(trace)
        self._most_collectives = max(map(len, trace.ranks))
        self._rings: dict[tuple[int, RingCollective], Ring] = {}
        self._positions = [
            {variant.placement.rank(one): position for position, (one, _) in enumerate(ring)} for ring in variant.rings
        ]
        wanted = self._wanted(variant)
        self._channels = network.channels(wanted, events)
        for group, collectives in enumerate(self._collectives):
            for collective in collectives:
                ends = variant.rings[group]
                alone = all(wanted[pair] == 1 for pair in ends)
                self._rings[group, collective] = self._ring(ends, collective, alone=alone)
        self._transfers: dict[tuple[Ends, int], OwnTransfers] = {}

    def _wanted(self, variant: TraceVariant) -> Counter[Ends]:
        """Return the ends of all channels, each with the number of its users: messages count as one, each ring too."""
        sends = {
            (self._places[rank], self._places[node.peer])
            for rank, nodes in enumerate(self._trace.ranks)
            for node in nodes
            if node.kind is WorkKind.SEND
        }
        wanted = Counter(sends)
        for ring, collectives in zip(variant.rings, self._collectives, strict=True):
            for _ in collectives:
                wanted.update(ring)
        return wanted

    def _ring(self, ends: tuple[Ends, ...], collective: RingCollective, *, alone: bool) -> Ring:
        connections = max(self._network.connections_between(pair) for pair in ends)
        size_bytes = collective.whole_bytes
        cut = RingCut.of(size_bytes, len(ends), connections, halved=collective.is_half)
        channels = [self._channels[pair] for pair in ends]
        return create_ring(self._network, ends, channels, self._events, cut=cut, size_bytes=size_bytes, alone=alone)

    def send(self, now_ns: int, rank: int, node: TraceNode, arrived: Arrived) -> None:
        """Queue a message of ``rank``. ``arrived`` is called once all its times are known."""
        ends = self._places[rank], self._places[node.peer]
        transfers = self._transfers.get((ends, node.size_bytes))
        if transfers is None:
            connections = self._network.connections_between(ends)
            cutting = Cutting(node.size_bytes, 1, connections)
            frames = cutting.chunks * HEADER_BYTES if self._network.effects.headers else 0
            striping = Striping(connections, cutting.chunks, cutting.largest_bytes) if connections > 1 else None
            transfers = OwnTransfers(self._channels[ends], node.size_bytes + frames, striping)
            self._transfers[ends, node.size_bytes] = transfers
        transfers.offer(now_ns, 0, node.microbatch, arrived)

    def join(self, now_ns: int, rank: int, node: TraceNode, iteration: int, done: Done) -> None:
        """Let ``rank`` join a collective of its group. ``done`` is called when its result is known."""
        # A ring distinguishes its rounds by a number, which in training is the iteration.
        number = iteration * self._most_collectives + node.number
        ring = self._rings[node.group, self._trace.collective(node)]
        ring.join(number, self._positions[node.group][rank], now_ns, done)

    def crossed(self) -> list[Crossing]:
        """Return the channels over the WAN that have carried traffic, each with its ends."""
        private = [
            crossing for ring in self._rings.values() if isinstance(ring, PrivateRing) for crossing in ring.crossed()
        ]
        return [
            (pair, channel)
            for pair, channel in (*self._channels.items(), *private)
            if pair[0].datacenter != pair[1].datacenter and channel.history
        ]


def _collectives(trace: ReplayedTrace) -> list[dict[RingCollective, None]]:
    """Return the collectives of each group, those that are alike once, in the order of the trace."""
    found: list[dict[RingCollective, None]] = [{} for _ in trace.groups]
    for nodes in trace.ranks:
        for node in nodes:
            if node.kind is WorkKind.COLLECTIVE:
                found[node.group][trace.collective(node)] = None
    return found
