"""Simulate one variant on one topology, with the schedule objects, placement and stage costs of an emulated trial."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from wanbed.results.records.span_columns import SpanColumns
from wanbed.runner.companions.background.simulation import BackgroundTraffic
from wanbed.runner.companions.faults.simulation.failures import Failures
from wanbed.runner.companions.prefill.resolution.prefill_forecast import planned_bubbles
from wanbed.runner.companions.prefill.simulation import PrefillSimulation
from wanbed.runner.resolve.connection_count import count_connections
from wanbed.runner.resolve.packet_draws import draws_packets
from wanbed.runner.resolve.pipeline_variant import PipelineVariant, in_pipelines
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.stage_rings import ring_pairs
from wanbed.runner.simulator.equal_parts import equal_parts
from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.event_run import run_events
from wanbed.runner.simulator.network.network import Ends, Network
from wanbed.runner.simulator.network.transfers import OwnTransfers, SharedTransfers
from wanbed.runner.simulator.network.wan_traffic import Crossing, wan_traffic
from wanbed.runner.simulator.ordered_spans import ordered_spans
from wanbed.runner.simulator.rings.norm_ring import NormRing
from wanbed.runner.simulator.rings.rings import Rings, ring_ends
from wanbed.runner.simulator.rings.rings_apart import rings_apart, rings_met, watched_hosts
from wanbed.runner.simulator.simulation import SimulatedFailure, SimulatedPrefill, Simulation
from wanbed.runner.simulator.training.surroundings import Transfers
from wanbed.runner.simulator.training.training import Pulse, Training
from wanbed.runner.simulator.training.training_loop import run_trainings
from wanbed.runner.simulator.work_numbers import WorkNumbers
from wanbed.runner.tcp.channel import Channel
from wanbed.runner.tcp.effects import TcpEffects, effects_of
from wanbed.runner.trainings.local_updates.resolution.local_updates_variant import LocalUpdatesVariant
from wanbed.runner.trainings.local_updates.simulation.stars import Stars, star_ends
from wanbed.runner.trainings.trace.resolution.trace_variant import TraceVariant
from wanbed.runner.trainings.trace.simulation.traced import simulate_trace
from wanbed.testbed.network.flow_model.striping import Striping
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.message import MessageKind
from wanbed.workloads.transport.frames.cutting import Cutting
from wanbed.workloads.transport.frames.frame import HEADER_BYTES

Rows = npt.NDArray[np.int64]

OTHER_KINDS: Mapping[type[ResolvedVariant], Callable[[Network[Any], int, Pulse | None], Simulation]] = {
    TraceVariant: simulate_trace
}
"""The simulation of each kind of training that does not follow a schedule: so many iterations over a network."""


def simulate_variant(
    topology: Topology,
    variant: ResolvedVariant,
    iterations: int,
    *,
    effects: TcpEffects | None = None,
    dilation: float = 1.0,
    symmetry: bool = True,
    one_part: bool = False,
    pulse: Pulse | None = None,
) -> Simulation:
    """Simulate ``iterations`` of training.

    ``effects`` selects the effects of TCP, by default all. ``dilation`` is that of an emulation to compare with, which
    does not dilate TCP's timers. With ``symmetry`` only one of several provably equal parts is simulated and represents
    all; the result is identical to the byte. With ``one_part`` its spans are not copied for the others. With a prefill
    service every GPU is simulated. ``pulse`` is told the share that is done, and may end the simulation by raising.
    Raises SimulationError, one line, if the schedule fails or deadlocks, or if times or sizes exceed 64 bits.
    """
    effects = TcpEffects() if effects is None else effects
    if (simulate := OTHER_KINDS.get(type(variant))) is not None:
        counted = count_connections(topology, variant.pairs, variant.transport)
        return simulate(Network(topology, counted, variant, effects, 1, dilation), iterations, pulse)
    variant = in_pipelines(variant)
    drawn = effects.impairments and draws_packets(topology, variant.transport)
    alone = variant.service is None and not variant.beside and not variant.background and not drawn
    parts = equal_parts(variant) if symmetry and alone else 1
    if variant.beside:
        return _simulate_at_once(topology, variant, iterations, effects, dilation=dilation, pulse=pulse)
    pipelines = range(variant.pipelines // parts)
    connections = count_connections(topology, variant.pairs, variant.transport)
    network = Network(topology, connections, variant, effects, parts, dilation)
    boundary_ends = _boundary_ends(variant, pipelines)
    shared = bool(variant.background or variant.norm_ring)
    apart = frozenset[int]() if shared else rings_apart(network, boundary_ends.values())
    train = partial(_trained, network, boundary_ends, pipelines, iterations, pulse=pulse)
    trained = train(apart)
    if trained.met:
        trained = train(apart - trained.met)
    if trained.met:
        trained = train(frozenset())
    represented = 1 if one_part else parts
    spans = ordered_spans(trained.rows, len(pipelines) * variant.placement.stages, represented)
    if (numbers := WorkNumbers.of(variant)) is not None:
        spans = numbers.decoded(spans)
    if trained.prefill is not None:
        spans = _with_prefill(spans, np.frombuffer(trained.prefill.rows, np.int64).reshape(-1, 9))
    traffic = wan_traffic(variant, trained.crossed, parts)
    flows = trained.background.flows()
    simulation = Simulation(spans, traffic, connections, trained.prefill, parts // represented, background=flows)
    stars = trained.stars
    if stars is None:
        return simulation
    return replace(simulation, sums=stars.sums, dropped=stars.dropped, failures=trained.failures)


@dataclass(frozen=True)
class _Trained:
    """The outcome of a simulated training. ``met`` are the stages whose rings were not alone, as was assumed."""

    rows: "array[int]"
    crossed: Sequence[Crossing]
    prefill: SimulatedPrefill | None
    met: frozenset[int]
    background: BackgroundTraffic
    stars: Stars | None = None
    failures: tuple[SimulatedFailure, ...] = ()


def _trained(
    network: Network[PipelineVariant],
    boundary_ends: "Mapping[Boundary, Ends]",
    pipelines: Sequence[int],
    iterations: int,
    apart: frozenset[int],
    *,
    pulse: Pulse | None,
) -> _Trained:
    """Simulate training, with the rings of the stages in ``apart`` as if they were alone."""
    variant, events = network.variant, EventQueue()
    of_stages = star_ends(network) if variant.is_star else ring_ends(network)
    of_rings = [pair for stage, ends in of_stages.items() if stage not in apart for pair in ends]
    # Several boundaries between virtual stages may have the same two places, whose transfers share a channel.
    background = BackgroundTraffic(variant.background, network, events)
    of_training = dict.fromkeys([*boundary_ends.values(), *of_rings])
    wanted = dict.fromkeys([*of_training, *ring_pairs(variant.norm_ring), *background.networks])
    sharing = replace(network, beside=background.by_host)
    channels = sharing.channels(wanted, events, watched_hosts(network, apart))
    boundaries = _Boundaries(network, boundary_ends, channels, events)
    sums = partial(Stars, iterations=iterations) if variant.is_star else partial(Rings, apart=apart)
    rings: Rings | Stars = sums(network, channels, events)
    norm = NormRing(network, channels, events) if variant.norm_ring else None
    service = None
    if variant.service is not None:
        service = PrefillSimulation(variant.service, network.intra_line, planned_bubbles(network.topology, variant))
    training = Training(
        variant,
        pipelines,
        iterations,
        events,
        transfers=boundaries.transfers,
        rings=rings,
        norm=norm,
        sharing=service,
        pulse=pulse,
    )
    background.begin(channels, [training.rows])
    failures = None
    if isinstance(variant, LocalUpdatesVariant) and variant.failures and isinstance(rings, Stars):
        headers = network.effects.headers
        failures = Failures(variant, training, rings.of_stages[0], events, iterations=iterations, headers=headers)
        failures.begin()
    run_events(partial(run_trainings, training, ()), events)
    prefill = None if service is None else service.end(events.now_ns)
    crossed = [*boundaries.crossed(), *rings.crossed(), *([] if norm is None else norm.crossed(of_training))]
    if isinstance(rings, Stars):
        rows = training.rows.numbers if failures is None else failures.kept(training.rows.numbers)
        found = () if failures is None else tuple(failures.found)
        return _Trained(rows, crossed, prefill, frozenset(), background, rings, found)
    return _Trained(training.rows.numbers, crossed, prefill, rings_met(network, rings, channels), background)


def _simulate_at_once(
    topology: Topology,
    variant: PipelineVariant,
    iterations: int,
    effects: TcpEffects,
    *,
    dilation: float,
    pulse: Pulse | None,
) -> Simulation:
    """Simulate a variant and those of other jobs beside it, on one network.

    All is made in order of the jobs, so that each variant of a combination finds the same.
    """
    events, networks = EventQueue(), []
    for each in variant.at_once:
        connections = count_connections(topology, each.pairs, each.transport)
        own_effects = effects if each is variant else effects_of(each.transport)
        networks.append(Network(topology, connections, each, own_effects, 1, dilation))
    background = BackgroundTraffic(variant.background, networks[0], events)
    by_host = {place.host.name: network for network in networks for place in network.variant.placement.places}
    every = [range(network.variant.pipelines) for network in networks]
    boundary_ends = [
        _boundary_ends(network.variant, pipelines) for network, pipelines in zip(networks, every, strict=True)
    ]
    wanted = [
        pair
        for network, ends in zip(networks, boundary_ends, strict=True)
        for pair in [
            *ends.values(),
            *(pair for of_ring in ring_ends(network).values() for pair in of_ring),
            *ring_pairs(network.variant.norm_ring),
        ]
    ]
    sharing = replace(networks[0], beside={**by_host, **background.by_host})
    channels = sharing.channels(dict.fromkeys([*wanted, *background.networks]), events)
    trainings, crossed = [], []
    for network, pipelines, ends in zip(networks, every, boundary_ends, strict=True):
        boundaries = _Boundaries(network, ends, channels, events)
        rings = Rings(network, channels, events)
        norm = NormRing(network, channels, events) if network.variant.norm_ring else None
        own_iterations = network.variant.iterations or iterations
        trainings.append(
            Training(
                network.variant,
                pipelines,
                own_iterations,
                events,
                transfers=boundaries.transfers,
                rings=rings,
                norm=norm,
                pulse=pulse,
            )
        )
        of_training = {*ends.values(), *(pair for of_ring in ring_ends(network).values() for pair in of_ring)}
        crossed.append((boundaries, rings, norm, of_training))
    background.begin(channels, [training.rows for training in trainings])
    first, *others = trainings
    run_events(partial(run_trainings, first, others), events)
    spans = [
        ordered_spans(each.rows.numbers, len(network.variant.placement.places), 1)
        for each, network in zip(trainings, networks, strict=True)
    ]
    boundaries, rings, norm, of_training = crossed[variant.turn]
    norms = [] if norm is None else norm.crossed(of_training)
    own, network = spans[variant.turn], networks[variant.turn]
    if (numbers := WorkNumbers.of(variant)) is not None:
        own = numbers.decoded(own)
    traffic = wan_traffic(variant, [*boundaries.crossed(), *rings.crossed(), *norms], 1)
    ends_ns = [int(each.end_ns.max(initial=0)) for each in spans]
    return Simulation(own, traffic, network.connections, while_all_ran_ns=min(ends_ns), background=background.flows())


Boundary = tuple[int, int, MessageKind]
"""A pipeline, the virtual stage that sends, and the kind of message that it sends."""


def _boundary_ends(variant: PipelineVariant, pipelines: Sequence[int]) -> dict[Boundary, Ends]:
    """Return the sending and the receiving place of every boundary of ``pipelines``, by direction."""
    ends = {}
    for pipeline in pipelines:
        for stage, (one, other) in enumerate(pairwise(variant.chains[pipeline])):
            if one != other:
                ends[pipeline, stage, MessageKind.ACTIVATION] = one, other
                ends[pipeline, stage + 1, MessageKind.GRADIENT] = other, one
    return ends


class _Boundaries:
    """The transfers over all boundaries of some pipelines."""

    def __init__(
        self,
        network: Network[PipelineVariant],
        ends: Mapping[Boundary, Ends],
        channels: Mapping[Ends, Channel],
        events: EventQueue,
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
        ends = sorted(dict.fromkeys(self._ends.values()), key=lambda ends: (ends[0].pipeline, ends[0].stage))
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
