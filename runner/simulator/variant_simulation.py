"""Simulate one variant on one topology, with the schedule objects, placement and stage costs of an emulated trial."""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields

import numpy as np
import numpy.typing as npt

from results.records.span_columns import SpanColumns
from runner.resolve.connection_count import count_connections
from runner.resolve.prefill.prefill_forecast import planned_bubbles
from runner.resolve.resolved_variant import ResolvedVariant
from runner.simulator.deadlock import SimulationError
from runner.simulator.equal_parts import equal_parts
from runner.simulator.event_queue import EventQueue
from runner.simulator.network.network import Ends, Network
from runner.simulator.network.transfers import OwnTransfers, SharedTransfers
from runner.simulator.network.wan_traffic import Crossing, wan_traffic
from runner.simulator.prefill_simulation import PrefillSimulation
from runner.simulator.rings.rings import Rings, ring_ends
from runner.simulator.simulation import NO_PEER, Simulation
from runner.simulator.traces.trace_network import TraceNetwork
from runner.simulator.traces.trace_replay import TraceReplay
from runner.simulator.training import Pulse, Training, Transfers
from runner.tcp.channel import Channel
from runner.tcp.effects import TcpEffects
from testbed.network.flow_model.striping import Striping
from testbed.network.topology import Topology
from workloads.message import MessageKind
from workloads.trace.replayed_trace import ReplayedTrace
from workloads.transport.frames.cutting import Cutting
from workloads.transport.frames.frame import HEADER_BYTES

Rows = npt.NDArray[np.int64]

_RANK, _PEER = 0, 7


def simulate_variant(
    topology: Topology,
    variant: ResolvedVariant,
    iterations: int,
    *,
    effects: TcpEffects | None = None,
    dilation: float = 1.0,
    symmetry: bool = True,
    pulse: Pulse | None = None,
) -> Simulation:
    """Simulate ``iterations`` of training.

    ``effects`` selects the effects of TCP, by default all. ``dilation`` is that of an emulation to compare with, which
    does not dilate TCP's timers. With ``symmetry`` only one of several provably equal parts is simulated and represents
    all; the result is identical to the byte. With a prefill service every GPU is simulated. ``pulse`` is told the share
    that is done, and may end the simulation by raising. Raises SimulationError, one line, if the schedule fails or
    deadlocks, or if times or sizes exceed 64 bits.
    """
    effects = TcpEffects() if effects is None else effects
    if variant.trace is not None:
        connections = count_connections(topology, variant.pairs, variant.transport, variant.clock)
        network = Network(topology, connections, variant, effects, 1, dilation)
        return _simulate_trace(network, variant.trace, iterations, pulse)
    parts = equal_parts(variant) if symmetry and variant.service is None else 1
    pipelines = range(variant.pipelines // parts)
    connections = count_connections(topology, variant.pairs, variant.transport, variant.clock)
    network = Network(topology, connections, variant, effects, parts, dilation)
    events = EventQueue()
    boundary_ends = _boundary_ends(variant, pipelines)
    of_rings = [pair for ends in ring_ends(network).values() for pair in ends]
    channels = network.channels([*boundary_ends.values(), *of_rings], events)
    boundaries, rings = _Boundaries(network, boundary_ends, channels, events), Rings(network, channels, events)
    service = None
    if variant.service is not None:
        service = PrefillSimulation(variant.service, network.intra_line, planned_bubbles(topology, variant))
    training = Training(
        variant,
        pipelines,
        iterations,
        events,
        transfers=boundaries.transfers,
        rings=rings,
        sharing=service,
        pulse=pulse,
    )
    _run(training, events)
    prefill = None if service is None else service.end(events.now_ns)
    spans = SpanColumns.of_training(_for_all(np.frombuffer(training.rows, np.int64).reshape(-1, 8), variant, parts))
    if prefill is not None:
        spans = _with_prefill(spans, np.frombuffer(prefill.rows, np.int64).reshape(-1, 9))
    crossed = [*boundaries.crossed(), *rings.crossed()]
    return Simulation(spans, wan_traffic(variant, crossed, parts), connections, prefill)


def _simulate_trace(network: Network, trace: ReplayedTrace, iterations: int, pulse: Pulse | None) -> Simulation:
    events = EventQueue()
    over = TraceNetwork(network, trace, events)
    replay = TraceReplay(trace, iterations, over, events, pulse)
    _run(replay, events)
    rows = _for_all(np.frombuffer(replay.rows, np.int64).reshape(-1, 8), network.variant, 1)
    traffic = wan_traffic(network.variant, over.crossed(), 1)
    return Simulation(SpanColumns.of_training(rows), traffic, network.connections)


def _run(simulated: Training | TraceReplay, events: EventQueue) -> None:
    with _no_garbage_collection():
        try:
            simulated.run()
        except OverflowError:
            raise SimulationError(
                f"its times or sizes are beyond 64 bits after {events.now_ns / 1e9:.3g} s: give shorter times, smaller "
                "sizes, higher rates or fewer iterations"
            ) from None


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Pause garbage collection, which takes a quarter of the time of a large simulation.

    A simulation creates no reference cycles that become garbage before its end.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


Boundary = tuple[int, int, MessageKind]
"""A pipeline, the stage that sends, and the kind of message that it sends."""


def _boundary_ends(variant: ResolvedVariant, pipelines: Sequence[int]) -> dict[Boundary, Ends]:
    """Return the sending and the receiving place of every boundary of ``pipelines``, by direction."""
    places, ends = variant.placement.pipelines, {}
    for pipeline in pipelines:
        for stage in range(variant.placement.stages - 1):
            one, other = places[pipeline][stage], places[pipeline][stage + 1]
            ends[pipeline, stage, MessageKind.ACTIVATION] = one, other
            ends[pipeline, stage + 1, MessageKind.GRADIENT] = other, one
    return ends


class _Boundaries:
    """The transfers over all boundaries of some pipelines."""

    def __init__(
        self, network: Network, ends: Mapping[Boundary, Ends], channels: Mapping[Ends, Channel], events: EventQueue
    ) -> None:
        self._network = network
        self._events = events
        self._ends = ends
        self._channels = channels
        self.transfers: dict[Boundary, Transfers] = {}
        for pipeline, stage, kind in ends:
            self._add_transfers(pipeline, stage, kind)

    def _add_transfers(self, pipeline: int, stage: int, kind: MessageKind) -> None:
        variant = self._network.variant
        boundary = stage if kind is MessageKind.ACTIVATION else stage - 1
        ends = self._ends[pipeline, stage, kind]
        if not variant.shares(boundary):
            cutting = Cutting(variant.work.activation_bytes[boundary], 1, self._network.connections_between(ends))
            (striping,) = self._stripings([ends], cutting)
            self.transfers[pipeline, stage, kind] = OwnTransfers(self._channels[ends], self._framed(cutting), striping)
            return
        cell = variant.cell(pipeline)
        if pipeline != cell.start:
            # They were created for the whole DP-cell together with its first pipeline, which comes first.
            self.transfers[pipeline, stage, kind] = self.transfers[cell.start, stage, kind]
            return
        mates = [self._ends[mate, stage, kind] for mate in cell]
        most = max(self._network.connections_between(each) for each in mates)
        cutting = Cutting(variant.work.activation_bytes[boundary], len(cell), most)
        turns: tuple[tuple[int, int], ...] = ()
        if variant.plan is not None:
            planned = variant.plan.activation_turns if kind is MessageKind.ACTIVATION else variant.plan.gradient_turns
            turns = planned[boundary]
        self.transfers[pipeline, stage, kind] = SharedTransfers(
            self._events,
            [self._channels[each] for each in mates],
            self._framed(cutting),
            cutting.largest_bytes,
            self._network.line((mates[0][0], mates[-1][0])),
            self._network.line((mates[0][1], mates[-1][1])),
            turns,
            self._stripings(mates, cutting),
        )

    def _stripings(self, mates: Sequence[Ends], cutting: Cutting) -> list[Striping | None]:
        """Return the striping of each mate's share over the connections of its node pair, None for one connection."""
        counts = [self._network.connections_between(ends) for ends in mates]
        return [
            Striping(connections, len(cutting.chunks_of(share)), cutting.largest_bytes) if connections > 1 else None
            for share, connections in enumerate(counts)
        ]

    def _framed(self, cutting: Cutting) -> int:
        frames = cutting.chunks * HEADER_BYTES if self._network.effects.headers else 0
        return cutting.total_bytes + frames

    def crossed(self) -> list[Crossing]:
        """Return the channels that cross the WAN, each with its ends."""
        ends = sorted(set(self._ends.values()), key=lambda ends: (ends[0].pipeline, ends[0].stage))
        return [(pair, self._channels[pair]) for pair in ends if pair[0].datacenter != pair[1].datacenter]


def _with_prefill(training: SpanColumns, rows: Rows) -> SpanColumns:
    """Return the spans of training and prefill together, in order."""
    both = [
        np.concatenate((getattr(training, entry.name), column))
        for entry, column in zip(fields(SpanColumns), rows.T, strict=True)
    ]
    rank, _, iteration, _, start_ns, end_ns, *_ = both
    order = np.lexsort((end_ns, start_ns, iteration, rank))
    return SpanColumns(*(column[order] for column in both))


def _for_all(rows: Rows, variant: ResolvedVariant, parts: int) -> Rows:
    """Return the spans of all parts in order, copied from the first part's."""
    rank, kind, iteration, microbatch, start_ns, end_ns, _, _ = rows.T
    rows = rows[np.lexsort((microbatch, kind, end_ns, start_ns, iteration, rank))]
    ranks = variant.pipelines // parts * variant.placement.stages
    every = np.tile(rows, (parts, 1))
    shifts = np.repeat(np.arange(parts, dtype=np.int64) * ranks, len(rows))
    every[:, _RANK] += shifts
    every[:, _PEER] += np.where(every[:, _PEER] == NO_PEER, 0, shifts)
    return every
