"""Simulate the replay of a trace as discrete events: every rank, iteration after iteration.

Each rank behaves like ``wanbed.workloads.trace_replay.trace_rank``. Its GPU runs one computation at a time, its CPU
another one, of those that are ready the first in the trace's order. A message leaves as soon as it is ready. The next
iteration begins without a barrier, when all nodes of the rank have ended.

Times are integer nanoseconds. As in ``wanbed.runner.simulator.training``, all events of one instant are handled first.
Then all affected ranks begin work, in order of rank.
"""

from array import array
from collections import Counter
from dataclasses import dataclass
from itertools import count

import numpy as np

from wanbed.flow.event_queue import EventQueue
from wanbed.ground.errors import SimulationError
from wanbed.results.records.span_columns import TraceSpanColumns
from wanbed.results.records.span_log import ACTIVATION, GRADIENT, NO_MICROBATCH
from wanbed.runner.simulator.channels.messages import Messages
from wanbed.runner.simulator.channels.network import Ends, Network
from wanbed.runner.simulator.channels.transfers import Arrived
from wanbed.runner.simulator.channels.wan_traffic import Crossing, wan_traffic
from wanbed.runner.simulator.event_run import run_events
from wanbed.runner.simulator.rings.ring import Ring
from wanbed.runner.simulator.rings.ring_all_reduce import Done, RingCut
from wanbed.runner.simulator.rings.rings import PrivateRing, create_ring
from wanbed.runner.simulator.simulated_spans import ordered_spans, span_order, taken_columns
from wanbed.runner.simulator.simulation import KIND_CODES, NO_PEER, Simulation
from wanbed.runner.simulator.training import PULSE_INSTANTS, Pulse
from wanbed.runner.trainings.trace.resolution import TraceVariant
from wanbed.workloads.trace_replay.replayed_trace import (
    RankGraph,
    RankProgress,
    ReplayedTrace,
    RingCollective,
    TraceNode,
    WorkKind,
)


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
        self._messages = Messages(network, self._channels)

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
        backs = [self._channels.get(pair[::-1]) for pair in ends]
        return create_ring(
            self._network, ends, channels, self._events, backs=backs, cut=cut, size_bytes=size_bytes, alone=alone
        )

    def send(self, now_ns: int, rank: int, node: TraceNode, arrived: Arrived) -> None:
        """Queue a message of ``rank``. ``arrived`` is called once all its times are known."""
        self._messages.send(now_ns, (self._places[rank], self._places[node.peer]), node.size_bytes, arrived)

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


_TENSORS = ("", ACTIVATION, GRADIENT)

_SEND, _RECEIVE = (KIND_CODES[kind] for kind in ("send", "receive"))


@dataclass(slots=True)
class _Rank:
    """One rank. ``busy`` holds the processors that compute."""

    number: int
    graph: RankGraph
    progress: RankProgress
    iteration: int
    busy: set[WorkKind]
    early: dict[int, list[tuple[int, int]]]


class TraceReplay:
    """Simulates ``iterations`` of a trace over ``network``. ``rows`` is as in ``Training``.

    ``tensors`` says for each row what a message carries, as ``TraceSpanColumns`` does.
    """

    def __init__(
        self,
        trace: ReplayedTrace,
        iterations: int,
        network: TraceNetwork,
        events: EventQueue,
        pulse: Pulse | None = None,
    ) -> None:
        graphs = [RankGraph(nodes) for nodes in trace.ranks]
        self._ranks = [_Rank(number, graph, RankProgress(graph), 0, set(), {}) for number, graph in enumerate(graphs)]
        self._iterations = iterations
        self._network = network
        self._events = events
        self._pulse = pulse
        self._pending = set(range(len(graphs)))
        self._ended = 0
        self._nodes = max(iterations * sum(map(len, trace.ranks)), 1)
        self.rows = array("q")
        self.tensors = array("q")

    def run(self) -> None:
        """Simulate all iterations. Raise SimulationError if ranks wait for each other for ever."""
        for instant in count(1):
            while self._pending:
                pending, self._pending = sorted(self._pending), set()
                for number in pending:
                    self._begin_ready(self._ranks[number])
            if not self._events.handle_next_instant():
                break
            if self._pulse is not None and instant % PULSE_INSTANTS == 0:
                self._pulse(min(self._ended / self._nodes, 1.0))
        stuck = next((rank for rank in self._ranks if rank.iteration < self._iterations), None)
        if stuck is not None:
            raise SimulationError(
                f"rank {stuck.number} of the trace waits for ever in iteration {stuck.iteration}: "
                f"{stuck.progress.left} nodes are left"
            )

    def _begin_ready(self, rank: _Rank) -> None:
        """Begin all that is ready at a rank, and the next iteration once this one has ended."""
        while rank.iteration < self._iterations:
            self._send_ready(rank)
            now_ns = self._events.now_ns
            while (position := rank.progress.next_of(WorkKind.COLLECTIVE)) is not None:
                self._join(now_ns, rank, position)
            for processor in (WorkKind.GPU, WorkKind.CPU):
                if processor not in rank.busy and (position := rank.progress.next_of(processor)) is not None:
                    rank.busy.add(processor)
                    end_ns = now_ns + rank.graph.nodes[position].duration_ns
                    self._events.at(end_ns, self._computed, (rank, position, now_ns))
            if not rank.progress.complete:
                return
            rank.iteration += 1
            rank.progress = RankProgress(rank.graph)
            for message in rank.early.pop(rank.iteration, ()):
                rank.progress.arrived(*message)

    def _computed(self, now_ns: int, what: tuple[_Rank, int, int]) -> None:
        rank, position, start_ns = what
        node = rank.graph.nodes[position]
        rank.busy.discard(node.kind)
        if node.kind is WorkKind.GPU:
            self._log(
                (rank.number, KIND_CODES[node.span], rank.iteration, node.microbatch, start_ns, now_ns, 0, NO_PEER)
            )
        self._end(rank, position)

    def _log(self, row: tuple[int, ...], tensor: int = 0) -> None:
        self.rows.extend(row)
        self.tensors.append(tensor)

    def _end(self, rank: _Rank, position: int) -> None:
        self._ended += 1
        rank.progress.ended(position)
        self._send_ready(rank)
        self._pending.add(rank.number)

    def _send_ready(self, rank: _Rank) -> None:
        while (position := rank.progress.next_of(WorkKind.SEND)) is not None:
            self._send(self._events.now_ns, rank, position)

    def _send(self, now_ns: int, rank: _Rank, position: int) -> None:
        node = rank.graph.nodes[position]
        receiver, iteration = self._ranks[node.peer], rank.iteration
        about = iteration, node.microbatch

        def arrived(first_left_ns: int, last_left_ns: int, first_arrival_ns: int, last_arrival_ns: int) -> None:
            size_bytes, events = node.size_bytes, self._events
            left_ns, arrival_ns = (first_left_ns, last_left_ns), (first_arrival_ns, last_arrival_ns)
            tensor = _TENSORS.index(node.tensor)
            self._log((rank.number, _SEND, *about, *left_ns, size_bytes, receiver.number), tensor)
            self._log((receiver.number, _RECEIVE, *about, *arrival_ns, size_bytes, rank.number), tensor)
            events.at(max(last_left_ns, events.now_ns), self._left, (rank, position))
            message = (receiver, iteration, (rank.number, node.number))
            events.at(max(last_arrival_ns, events.now_ns), self._arrive, message)

        self._network.send(now_ns, rank.number, node, arrived)

    def _left(self, _: int, what: tuple[_Rank, int]) -> None:
        self._end(*what)

    def _arrive(self, _: int, what: tuple[_Rank, int, tuple[int, int]]) -> None:
        rank, iteration, message = what
        if iteration > rank.iteration:
            rank.early.setdefault(iteration, []).append(message)
            return
        rank.progress.arrived(*message)
        self._send_ready(rank)
        self._pending.add(rank.number)

    def _join(self, now_ns: int, rank: _Rank, position: int) -> None:
        node: TraceNode = rank.graph.nodes[position]
        iteration = rank.iteration

        def done(start_ns: int, end_ns: int) -> None:
            about = rank.number, KIND_CODES[node.span], iteration, NO_MICROBATCH
            self._log((*about, start_ns, end_ns, node.size_bytes, NO_PEER))
            self._events.at(max(end_ns, self._events.now_ns), self._left, (rank, position))

        self._network.join(now_ns, rank.number, node, iteration, done)


def simulate(network: Network[TraceVariant], iterations: int, pulse: Pulse | None) -> Simulation:
    """Simulate so many iterations of the trace over the network."""
    events, variant = EventQueue(), network.variant
    over = TraceNetwork(network, variant.trace, events)
    replay = TraceReplay(variant.trace, iterations, over, events, pulse)
    run_events(replay.run, events)
    traffic = wan_traffic(network, over.crossed(), 1)
    columns = taken_columns(replay.rows)
    tensor = np.frombuffer(replay.tensors, np.int64)[span_order(columns)]
    spans = ordered_spans(columns, len(variant.placement.places), 1)
    return Simulation(TraceSpanColumns(**vars(spans), tensor=tensor), traffic, network.connections)
