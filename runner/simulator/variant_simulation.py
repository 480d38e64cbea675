"""Simulate one variant on one topology, with the schedule objects, placement and stage costs of an emulated trial."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise, permutations

import numpy as np
import numpy.typing as npt

from wanbed.flow.channel import Channel
from wanbed.flow.event_queue import EventQueue
from wanbed.flow.striping import Striping
from wanbed.results.records.span_columns import SpanColumns
from wanbed.runner.companions.background.simulation import SimulatedBackground
from wanbed.runner.companions.faults.simulation import SimulatedFailures
from wanbed.runner.companions.prefill.resolution import planned_bubbles
from wanbed.runner.companions.prefill.simulation import PrefillSimulation
from wanbed.runner.resolve.connections import count_connections
from wanbed.runner.resolve.equal_parts import equal_parts
from wanbed.runner.resolve.followed_packets import follows_packets
from wanbed.runner.resolve.packet_draws import draws_packets
from wanbed.runner.resolve.pipeline_variant import PipelineVariant, in_pipelines
from wanbed.runner.resolve.placement import StagePlace
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.stage_rings import ring_pairs
from wanbed.runner.resolve.tcp_effects import TcpEffects, effects_of
from wanbed.runner.simulator.channels.network import Ends, Network
from wanbed.runner.simulator.channels.packet_channel import PacketChannel
from wanbed.runner.simulator.channels.relayed_transfers import Leg, RelayedTransfers, WithinHost
from wanbed.runner.simulator.channels.transfers import OwnTransfers, SharedTransfers, Transfers
from wanbed.runner.simulator.channels.wan_traffic import Crossing, wan_traffic
from wanbed.runner.simulator.event_run import no_garbage_collection, run_events
from wanbed.runner.simulator.rings.ring import NormRing
from wanbed.runner.simulator.rings.rings import Rings, ring_ends
from wanbed.runner.simulator.rings.rings_apart import rings_apart, rings_met, watched_hosts
from wanbed.runner.simulator.simulated_ranks import NUMBERS
from wanbed.runner.simulator.simulated_spans import WorkNumbers, ordered_spans, taken_columns
from wanbed.runner.simulator.simulation import SimulatedFailure, SimulatedPrefill, Simulation
from wanbed.runner.simulator.surroundings import Surroundings
from wanbed.runner.simulator.training import Pulse, SharedTraining, Training, run_trainings
from wanbed.runner.trainings.local_updates.resolution import LocalUpdatesVariant
from wanbed.runner.trainings.local_updates.simulation import Stars, star_ends
from wanbed.runner.trainings.registry import training_layer
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.message import MessageKind
from wanbed.workloads.transport.frame import HEADER_BYTES, Cutting

_Rows = npt.NDArray[np.int64]

_END = 5
"""The position of a span's end in a row of ``Training.rows``."""


def share_striping(cutting: Cutting, share: int, connections: int, channel: Channel) -> Striping | None:
    """Return the striping of a node pair's share of a transfer over its connections.

    None for a single one, unless ``channel`` has the kernel's buffers: chunks are handed to it one by one.
    """
    if connections == 1 and not channel.releases_when_accepted:
        return None
    return Striping(connections, len(cutting.chunks_of(share)), cutting.largest_bytes)


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
    if (training := training_layer(variant.spec.schedule, "simulation")) is not None:
        counted = count_connections(topology, variant.pairs, variant.transport)
        network = Network(topology, counted, variant, effects, 1, dilation)
        simulated: Simulation = training.simulate(network, iterations, pulse)
        return simulated
    variant = in_pipelines(variant)
    drawn = effects.impairments and draws_packets(topology, variant.transport)
    # The timers of packets are those of a network that is not dilated.
    packets = effects.follow_packets and dilation == 1 and follows_packets(topology, variant, iterations)
    alone = variant.service is None and not variant.beside and not variant.background and not drawn and not packets
    parts = equal_parts(variant) if symmetry and alone else 1
    jobs = [
        _Job(
            Network(
                topology,
                count_connections(topology, each.pairs, each.transport),
                each,
                effects if each is variant else effects_of(each.transport),
                parts,
                dilation,
                packets,
            ),
            range(each.pipelines // parts),
            each.iterations or iterations if variant.beside else iterations,
        )
        for each in variant.at_once
    ]
    own = jobs[variant.jobs.turn]
    shared = bool(variant.beside or variant.background or variant.norm_ring or own.network.packets)
    apart = frozenset[int]() if shared else rings_apart(own.network, own.boundary_ends.values())
    train = partial(_train, jobs, own, pulse)
    trained = train(apart)
    if trained.met:
        trained = train(apart - trained.met)
    if trained.met:
        trained = train(frozenset())
    represented = 1 if one_part else parts
    spans = ordered_spans(taken_columns(trained.rows), own.ranks, represented)
    if (numbers := WorkNumbers.of(variant)) is not None:
        spans = numbers.decoded(spans)
    if trained.prefill is not None:
        spans = _with_prefill(spans, np.frombuffer(trained.prefill.rows, np.int64).reshape(-1, 9))
    simulation = Simulation(
        spans,
        wan_traffic(own.network, trained.crossed, parts),
        own.network.connections,
        trained.prefill,
        parts // represented,
        represented,
        while_all_ran_ns=min(trained.ends_ns) if variant.beside else None,
        background=trained.background.flows(),
    )
    stars = trained.stars
    if stars is None:
        return simulation
    return replace(simulation, sums=stars.sums, dropped=stars.dropped, failures=trained.failures)


@dataclass(frozen=True)
class _Trained:
    """The outcome of a simulated training, and when each of the jobs that share its network ended.

    ``met`` are the stages whose rings were not alone, as was assumed.
    """

    rows: "array[int]"
    crossed: Sequence[Crossing]
    prefill: SimulatedPrefill | None
    met: frozenset[int]
    background: SimulatedBackground
    ends_ns: Sequence[int]
    stars: Stars | None = None
    failures: tuple[SimulatedFailure, ...] = ()


class _Job:
    """The training of a variant over its network: ``iterations`` of the ``pipelines`` that are simulated."""

    def __init__(self, network: Network[PipelineVariant], pipelines: Sequence[int], iterations: int) -> None:
        self.network, self.variant = network, network.variant
        self.boundary_ends = _boundary_ends(network.variant, pipelines)
        self.ranks = len(pipelines) * network.variant.placement.stages
        self._pipelines, self._iterations = pipelines, iterations
        self._summing = star_ends(network) if network.variant.is_star else ring_ends(network)

    def ways(self, apart: frozenset[int]) -> dict[Ends, None]:
        """Return the ways over which it sends, but for the rings of the stages in ``apart`` and that of the norm."""
        # Several boundaries between virtual stages may have the same two places, whose transfers share a channel.
        sums = [pair for stage, ends in self._summing.items() if stage not in apart for pair in ends]
        followed = []
        if self.network.packets:
            # Replicas report to each other against the direction of a ring, over its connections.
            followed = [*self._relaying_ends, *(pair[::-1] for pair in sums if pair[0].host != pair[1].host)]
        return dict.fromkeys([*self.boundary_ends.values(), *sums, *followed])

    @property
    def _relaying_ends(self) -> list[Ends]:
        """The cell mates on different hosts that relay for each other."""
        variant, first = self.variant, self._pipelines[0]
        return [
            ends
            for start in range(first, first + len(self._pipelines), variant.pipelines_per_cell)
            for stage in range(variant.placement.stages)
            if variant.cell_mates_connect(stage)
            for ends in permutations([variant.placement.replicas(stage)[mate] for mate in variant.cell(start)], 2)
            if ends[0].host != ends[1].host
        ]

    def over(self, channels: Mapping[Ends, Channel], events: EventQueue, apart: frozenset[int]) -> "_RunningJob":
        """Return the job over these channels, with the rings of the stages in ``apart`` as if they were alone."""
        variant, network = self.variant, self.network
        boundaries = _Boundaries(network, self.boundary_ends, channels, events)
        sums = partial(Stars, iterations=self._iterations) if variant.is_star else partial(Rings, apart=apart)
        rings: Rings | Stars = sums(network, channels, events)
        norm = NormRing(network, channels, events) if variant.norm_ring else None
        surroundings = Surroundings(boundaries.transfers, rings, norm)
        trained = variant, self._pipelines, self._iterations, events, surroundings
        service = None
        if variant.service is None:
            training = Training(*trained)
        else:
            service = PrefillSimulation(variant.service, network.intra_line, planned_bubbles(network.topology, variant))
            training = SharedTraining(*trained, sharing=service)
        failures = None
        if isinstance(variant, LocalUpdatesVariant) and variant.failures and isinstance(rings, Stars):
            star, headers = rings.of_stages[0], network.effects.headers
            failures = SimulatedFailures(variant, training, star, events, iterations=self._iterations, headers=headers)
        return _RunningJob(training, boundaries, rings, norm, service, failures)


@dataclass(frozen=True)
class _RunningJob:
    """A job over channels; each part None where the variant has none."""

    training: Training
    boundaries: "_Boundaries"
    rings: Rings | Stars
    norm: NormRing | None
    service: PrefillSimulation | None
    failures: SimulatedFailures | None

    @property
    def rows(self) -> "array[int]":
        """The spans of training that are kept."""
        numbers = self.training.rows.numbers
        return numbers if self.failures is None else self.failures.kept(numbers)

    def crossed(self, ways: Mapping[Ends, None]) -> list[Crossing]:
        """Return the channels that have crossed the WAN. ``ways`` are those of its job without the ring of the norm."""
        norm = [] if self.norm is None else self.norm.crossed(ways)
        return [*self.boundaries.crossed(), *self.rings.crossed(), *norm]


@no_garbage_collection()
def _train(jobs: Sequence[_Job], own: _Job, pulse: Pulse | None, apart: frozenset[int]) -> _Trained:
    """Simulate all jobs on one network, and return the outcome of ``own``.

    All is made in order of the jobs, so that each variant of a combination finds the same.
    """
    events, first = EventQueue(), jobs[0].network
    background = SimulatedBackground(own.variant.background, first, events)
    hosts = {place.host.name: job.network for job in jobs for place in job.variant.placement.places}
    sharing = replace(first, beside={**(hosts if len(jobs) > 1 else {}), **background.by_host})
    ways = [pair for job in jobs for pair in (*job.ways(apart), *ring_pairs(job.variant.norm_ring))]
    wanted = dict.fromkeys([*ways, *background.networks])
    channels = sharing.channels(wanted, events, watched_hosts(own.network, apart))
    running = [job.over(channels, events, apart) for job in jobs]
    background.begin(channels, [job.training.rows for job in running])
    for job in running:
        if job.failures is not None:
            job.failures.begin()
    leading, *others = (job.training for job in running)
    run_events(partial(run_trainings, leading, others, pulse), events)
    found = running[jobs.index(own)]
    rings, failures = found.rings, found.failures
    prefill = None if found.service is None else found.service.end(events.now_ns)
    return _Trained(
        found.rows,
        found.crossed(own.ways(apart)),
        prefill,
        frozenset() if isinstance(rings, Stars) else rings_met(own.network, rings, channels),
        background,
        [_end_ns(job.training) for job in running],
        rings if isinstance(rings, Stars) else None,
        () if failures is None else tuple(failures.found),
    )


def _end_ns(training: Training) -> int:
    """Return the end of its last span."""
    rows = np.frombuffer(training.rows.numbers, np.int64).reshape(-1, NUMBERS)
    return int(rows[:, _END].max(initial=0))


_Boundary = tuple[int, int, MessageKind]
"""A pipeline, the virtual stage that sends, and the kind of message that it sends."""


def _boundary_ends(variant: PipelineVariant, pipelines: Sequence[int]) -> dict[_Boundary, Ends]:
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
        ends: Mapping[_Boundary, Ends],
        channels: Mapping[Ends, Channel],
        events: EventQueue,
    ) -> None:
        self._network = network
        self._events = events
        self._ends = ends
        self._channels = channels
        self.transfers: dict[_Boundary, Transfers] = {}
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
        if self._network.packets:
            across = [self._leg(each) for each in mates]
            near, far = (self._legs([each[end] for each in mates]) for end in (0, 1))
            self.transfers[pipeline, stage, kind] = RelayedTransfers(
                self._events,
                kind,
                cutting,
                across,
                near=near,
                far=far,
                connections=[self._network.connections_between(each) for each in mates],
                turns=variant.turns(kind, boundary),
            )
            return
        self.transfers[pipeline, stage, kind] = SharedTransfers(
            self._events,
            [self._channels[each] for each in mates],
            self._framed(cutting),
            cutting.largest_bytes,
            scatter=self._network.line((mates[0][0], mates[-1][0])),
            gather=self._network.line((mates[0][1], mates[-1][1])),
            turns=variant.turns(kind, boundary),
            stripings=self._stripings(mates, cutting),
        )

    def _legs(self, mates: Sequence[StagePlace]) -> dict[tuple[int, int], Leg]:
        """Return the ways between each two cell mates of a stage, by their numbers."""
        return {
            (one, other): self._leg((mates[one], mates[other])) for one, other in permutations(range(len(mates)), 2)
        }

    def _leg(self, ends: Ends) -> Leg:
        """Return the connections between two ranks whose packets are followed."""
        channel = self._channels.get(ends)
        return channel if isinstance(channel, PacketChannel) else WithinHost(self._network.line(ends), self._events)

    def _stripings(self, mates: Sequence[Ends], cutting: Cutting) -> list[Striping | None]:
        """Return the striping of each mate's share over the connections of its node pair, as ``share_striping``."""
        return [
            share_striping(cutting, share, self._network.connections_between(ends), self._channels[ends])
            for share, ends in enumerate(mates)
        ]

    def _framed(self, cutting: Cutting) -> int:
        frames = cutting.chunks * HEADER_BYTES if self._network.effects.headers else 0
        return cutting.total_bytes + frames

    def crossed(self) -> list[Crossing]:
        """Return the channels that cross the WAN, each with its ends."""
        ends = sorted(dict.fromkeys(self._ends.values()), key=lambda ends: (ends[0].pipeline, ends[0].stage))
        return [(pair, self._channels[pair]) for pair in ends if pair[0].datacenter != pair[1].datacenter]


def _with_prefill(training: SpanColumns, rows: _Rows) -> SpanColumns:
    """Return the spans of training and prefill together, in order."""
    both = [
        np.concatenate((getattr(training, entry.name), column))
        for entry, column in zip(fields(SpanColumns), rows.T, strict=True)
    ]
    rank, _, iteration, _, start_ns, end_ns, *_ = both
    order = np.lexsort((end_ns, start_ns, iteration, rank))
    return SpanColumns(*(column[order] for column in both))
