"""Make the plan of each rank from a sweep point's variant."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path

from wanbed.results.records.span_log import RankPlace
from wanbed.runner.companions.losses.resolution import held_out, learning_seed
from wanbed.runner.resolve.all_reduce_check import NCCL_SHARED
from wanbed.runner.resolve.connections import held_bytes
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.placement import Pair, StagePlace
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.stage_costs import model_config
from wanbed.runner.resolve.stage_rings import Ring, most_connections, ring_pairs
from wanbed.runner.trainings.local_updates.resolution import LocalUpdatesVariant
from wanbed.runner.trainings.torch_baseline.resolution import BaselineVariant
from wanbed.testbed.network.address_book import AddressBook
from wanbed.testbed.network.addressing import HOST_INTERFACE
from wanbed.testbed.network.links.wan_link import longest_outage_ns
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.collective.collective_config import GLOO, NCCL, CollectiveConfig
from wanbed.workloads.compute.backends.backend import ComputeConfig
from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.device_settings import SwapSettings, TrainingDevice
from wanbed.workloads.connected_config import ConnectedConfig, RankProcessConfig
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.kept_files import KeptFilesConfig, SnapshotConfig
from wanbed.workloads.message import MessageKind
from wanbed.workloads.rank_config import RankConfig, ScheduleConfig
from wanbed.workloads.serving.serving_configs import GpuServingConfig
from wanbed.workloads.transport.chunk_transport import ChunkMessages
from wanbed.workloads.transport.links_config import (
    BoundariesConfig,
    BoundaryConfig,
    ExchangeConfig,
    LinksConfig,
    RendezvousConfig,
    RingConfig,
    RingsConfig,
    StarConfig,
)
from wanbed.workloads.transport.peer import Peer
from wanbed.workloads.transport.socket_options import PEER_TIMEOUT_S

FIRST_PORT = 20_000
"""Rank r listens on FIRST_PORT + r; the stores of stages follow. All are below the kernel's ephemeral ports."""

_RACK_RENDEZVOUS_NS = 60_000_000_000
"""Ranks on several machines are started one after the other, over the network, and not all machines are quick."""


@dataclass(frozen=True)
class RankPatience:
    """The time for which the ranks of a trial wait for each other.

    With ``starts_slowly`` they have more time for their rendezvous. A peer that is silent for ``peer_timeout_s`` of the
    testbed's clock is lost.
    """

    starts_slowly: bool = False
    peer_timeout_s: int = PEER_TIMEOUT_S

    def rendezvous_timeout_ns(self, point: SweepPoint) -> int:
        """Return the limit of the rendezvous of the ranks, from the start of each."""
        limit_ns = point.spec.compute.backend.rendezvous_timeout_ns
        limit_ns = max(limit_ns, _RACK_RENDEZVOUS_NS) if self.starts_slowly else limit_ns
        return limit_ns + self.outage_ns

    @property
    def outage_ns(self) -> int:
        """By how much longer than elsewhere ranks wait for each other, because links are known to be down at times."""
        return (self.peer_timeout_s - PEER_TIMEOUT_S) * 10**9


@dataclass(frozen=True)
class SharedConfig:
    """The setting that the ranks of one trial share beyond their variant.

    ``connections`` holds how many TCP connections join two hosts, by the hosts of a pair of the variant, lower rank
    first. ``folder`` receives the span logs and, with ``keep_gradients``, what the last iteration has summed.
    ``device`` is the device that every process computes on, cuda or cpu, None if the back end uses none. With
    ``models_tcp`` the network holds the windows, and receivers do not. ``serving`` has what some of the ranks prefill.
    """

    addresses: AddressBook
    connections: Mapping[tuple[str, str], int]
    dilation: float
    run_token: str
    epoch_ns: int
    folder: Path
    parent_pid: int
    keep_gradients: bool = False
    device: str | None = None
    models_tcp: bool = False
    patience: RankPatience = RankPatience()
    serving: Mapping[int, GpuServingConfig] = field(default_factory=dict)

    def span_log(self, rank: int) -> Path:
        """Return the file in which a rank logs its spans."""
        return self.folder / f"rank-{rank}.spans"

    @property
    def start_gate(self) -> Path:
        """The path at which ranks wait for each other before they begin."""
        return self.folder / "start"

    def gradients(self, rank: int) -> Path | None:
        """Return the file to which a rank writes its summed gradients, None where they are not kept."""
        return self.folder / f"rank-{rank}.gradients.npz" if self.keep_gradients else None

    def snapshots(self, point: SweepPoint, variant: ResolvedVariant) -> SnapshotConfig | None:
        """Return the snapshots that every rank keeps for an evaluation, None if nothing is evaluated."""
        every = point.spec.training.evaluate_every
        if every is None or not isinstance(variant, PipelineVariant) or not point.spec.compute.backend.trains:
            return None
        return SnapshotConfig(str(self.folder / "snapshots"), every, point.iterations(variant))


def configure_ranks(point: SweepPoint, variant: PipelineVariant, setting: SharedConfig) -> list[RankConfig]:
    """Return one plan for each rank, in order: ``pipeline x stages + stage``."""
    return [_plan(point, variant, setting, place) for place in variant.placement.places]


def _plan(point: SweepPoint, variant: PipelineVariant, setting: SharedConfig, place: StagePlace) -> RankConfig:
    connected = connected_config(point, variant, setting, place, _links(point, variant, setting, place))
    gradients = setting.gradients(connected.rank)
    return RankConfig(
        **vars(connected),
        schedule=ScheduleConfig(variant.schedule, variant.shape, variant.schedule_options(place.pipeline, place.stage)),
        compute=_compute(point, variant, setting, place),
        overlap=variant.transport.overlap,
        kept=KeptFilesConfig(
            gradients=None if gradients is None else str(gradients), snapshots=setting.snapshots(point, variant)
        ),
        serving=setting.serving.get(connected.rank),
    )


def _compute(point: SweepPoint, variant: PipelineVariant, setting: SharedConfig, place: StagePlace) -> ComputeConfig:
    compute = point.spec.compute
    seldom = variant if isinstance(variant, LocalUpdatesVariant) else None
    return ComputeConfig(
        backend=compute.backend_path,
        options=compute.options,
        costs=variant.costs(place.pipeline, place.stage, setting.dilation),
        computed=ComputedStage(
            stages=variant.placement.stages,
            stage=place.stage,
            pipelines=variant.pipelines,
            pipeline=place.pipeline,
            microbatches=variant.microbatches,
            virtual=variant.virtual,
        ),
        learning=_learning(point, variant) if compute.backend.trains else None,
        device=TrainingDevice(
            setting.device or "auto",
            compute.threads or 1,
            deterministic=bool(compute.deterministic),
            check_iteration=compute.check_iteration,
            swapping=_swapping(point, variant),
        ),
        chunks=variant.chunk_costs(place.stage, setting.dilation),
        synchronization=seldom.synchronization if seldom else None,
        fragments_bytes=seldom.fragments_bytes(place.stage) if seldom else (),
        encoded=variant.encoded,
        collective=_collective(point, variant, setting, place),
    )


def _learning(point: SweepPoint, variant: PipelineVariant) -> LearningConfig:
    training = point.spec.training
    return LearningConfig(
        variant.cut(model_config(point.spec, point.spec.compute.backend.title)),
        training.learning_rate,
        training.precision,
        learning_seed(point.spec, variant.repeat),
        point.text,
        held_out(training),
    )


def _swapping(point: SweepPoint, variant: PipelineVariant) -> SwapSettings | None:
    """Return how ranks swap their layers, None where they do not, or where their times include that.

    They measure their groups, unless the file names the profile whose times gave them.
    """
    compute = point.spec.compute
    grouping = variant.grouping if isinstance(variant, LocalUpdatesVariant) else None
    if grouping is None or not compute.backend.swaps:
        return None
    return SwapSettings(None if compute.profile is None else grouping.sizes, grouping.model.memory_bytes)


def _links(point: SweepPoint, variant: PipelineVariant, setting: SharedConfig, place: StagePlace) -> LinksConfig:
    placement = variant.placement
    whole = variant.virtual is None
    sums = any(variant.work.gradient_bytes) and _sums_over_transport(point, variant)
    overlaps = variant.overlaps_all_reduce and variant.work.gradient_bytes[place.stage] > 0
    sums = sums and not variant.is_star
    seldom = variant if isinstance(variant, LocalUpdatesVariant) and not variant.is_star else None
    return LinksConfig(
        rank=placement.rank(place),
        pipeline=place.pipeline,
        stage=place.stage,
        peers=tuple(peer_of(point, variant, setting, place, pair) for pair in variant.pairs if place in pair),
        iterations=point.iterations(variant),
        boundaries=BoundariesConfig(
            _boundary(variant, setting, place, -1) if whole and place.stage > 0 else None,
            _boundary(variant, setting, place, +1) if whole and place.stage + 1 < placement.stages else None,
            variant.microbatches,
        ),
        exchanges=() if whole else _exchanges(variant, setting, place),
        rings=RingsConfig(
            _rings(variant, setting, place) if sums else (),
            buckets=len(variant.buckets_bytes(place.stage)) if overlaps else 0,
            synchronizations=seldom.synchronization.count(point.iterations(seldom)) if seldom else None,
            norm=_ring_config(variant, setting, variant.norm_ring) if variant.norm_ring else None,
            butterfly=bool(sums and variant.transport.is_butterfly),
            chained=bool(sums and variant.transport.is_chain),
            announced=bool(sums and variant.transport.is_gloo),
            sums=variant.sums_an_iteration if sums else 1,
        ),
        star=_star(point, variant, setting, place),
        window_bytes=None if setting.models_tcp else variant.tcp.window_bytes,
        on_request=variant.receives_block,
    )


def _star(point: SweepPoint, variant: PipelineVariant, setting: SharedConfig, place: StagePlace) -> StarConfig | None:
    """Return the star over which the replicas of this stage synchronise, None where there is none."""
    if not isinstance(variant, LocalUpdatesVariant) or not variant.is_star:
        return None
    synchronization = variant.synchronization
    return StarConfig(
        tuple(variant.placement.rank(replica) for replica in variant.placement.replicas(place.stage)),
        variant.fragments_bytes(place.stage),
        synchronization.count(point.iterations(variant)),
        synchronization.quorum,
        most_connections(variant.summing_pairs(place.stage), setting.connections),
        variant.state_bytes(place.stage) if point.faults.brings_back(variant) else 0,
    )


def rejoining(plan: RankConfig, plans: Sequence[RankConfig], span_log: Path) -> RankConfig:
    """Return the plan of a rank of a star that joins the training under way of ``plans``, of which it was one."""
    links = plan.links.joining({each.rank: each.rendezvous.listen_port for each in plans})
    process = replace(plan.process, span_log=str(span_log), start_gate=None)
    return replace(plan, links=links, process=process)


def _rings(variant: PipelineVariant, setting: SharedConfig, place: StagePlace) -> tuple[RingConfig, ...]:
    """Return the rings that a replica is in: one of all, one inside its datacenter and one across, or each pair's."""
    rings = variant.rings(place.stage)
    if rings.butterfly is None:
        return tuple(_ring_config(variant, setting, ring) for ring in rings.with_place(place))
    # All cut the data alike.
    connections, piece_bytes = most_connections(rings.pairs, setting.connections), variant.transport.piece_bytes
    return tuple(
        RingConfig(tuple(map(variant.placement.rank, ring)), connections, piece_bytes)
        for ring in rings.with_place(place)
    )


def _ring_config(variant: PipelineVariant, setting: SharedConfig, ring: Ring) -> RingConfig:
    connections = most_connections(ring_pairs(ring), setting.connections)
    return RingConfig(tuple(map(variant.placement.rank, ring)), connections, variant.transport.piece_bytes)


def _exchanges(variant: PipelineVariant, setting: SharedConfig, place: StagePlace) -> tuple[ExchangeConfig, ...]:
    """Return the messages between the virtual stages of this stage and those of each neighbour."""
    messages, sizes = ChunkMessages(variant.layout, variant.microbatches), variant.work.activation_bytes
    found = []
    for pair in variant.pairs:
        peer = pair[1] if place == pair[0] else pair[0]
        if place not in pair or peer.pipeline != place.pipeline:
            continue
        found.append(
            ExchangeConfig(
                variant.placement.rank(peer),
                messages.sizes(place.stage, peer.stage, sizes),
                messages.sizes(peer.stage, place.stage, sizes),
                setting.connections[pair[0].host.name, pair[1].host.name],
            )
        )
    return tuple(found)


def _collective(
    point: SweepPoint, variant: PipelineVariant, setting: SharedConfig, place: StagePlace
) -> CollectiveConfig | None:
    if isinstance(variant, BaselineVariant) or _sums_over_transport(point, variant):
        return None
    replicas = variant.placement.replicas(place.stage)
    return CollectiveConfig(
        backend=GLOO if variant.transport.all_reduce == GLOO else NCCL,
        shares_gpus=variant.transport.all_reduce == NCCL_SHARED,
        hosts=tuple(replica.host.name for replica in replicas),
        position=replicas.index(place),
        interface=HOST_INTERFACE,
        store_address=setting.addresses.address(replicas[0].host),
        # After the ports that ranks listen on.
        store_port=FIRST_PORT + len(variant.placement.places) + place.stage,
        timeout_ns=setting.patience.rendezvous_timeout_ns(point),
    )


def _sums_over_transport(point: SweepPoint, variant: PipelineVariant) -> bool:
    return variant.transport.sums_over_transport(on_device=point.spec.compute.backend.sums_on_device)


def _boundary(variant: PipelineVariant, setting: SharedConfig, place: StagePlace, step: int) -> BoundaryConfig:
    placement, pipeline = variant.placement, place.pipeline
    boundary = place.stage if step > 0 else place.stage - 1
    rank = placement.rank(placement.pipelines[pipeline][place.stage + step])
    size_bytes = variant.work.activation_bytes[boundary]
    cell = variant.cell(pipeline) if variant.shares(boundary) else range(pipeline, pipeline + 1)
    pairs = [placement.pipelines[mate][boundary : boundary + 2] for mate in cell]
    connections = max(setting.connections[one.host.name, other.host.name] for one, other in pairs)
    if not variant.shares(boundary):
        return BoundaryConfig(rank, size_bytes, connections=connections)
    mates = tuple(placement.rank(placement.pipelines[mate][place.stage]) for mate in cell)
    kind = MessageKind.ACTIVATION if step > 0 else MessageKind.GRADIENT
    turns = tuple((cell.start + mate, microbatch) for mate, microbatch in variant.turns(kind, boundary))
    return BoundaryConfig(rank, size_bytes, mates, turns, connections)


def connected_config(
    point: SweepPoint, variant: ResolvedVariant, setting: SharedConfig, place: StagePlace, links: LinksConfig
) -> ConnectedConfig:
    """Return all that the rank at a place needs to meet its peers, begin with them, and log its spans."""
    rank = variant.placement.rank(place)
    return ConnectedConfig(
        place=RankPlace(rank, place.host.name, place.datacenter, place.gpu, place.pipeline, place.stage),
        process=RankProcessConfig(
            str(setting.span_log(rank)), setting.epoch_ns, setting.parent_pid, str(setting.start_gate)
        ),
        iterations=point.iterations(variant),
        links=links,
        rendezvous=rendezvous_of(point, setting, place, rank),
    )


def message_links(
    point: SweepPoint,
    variant: ResolvedVariant,
    setting: SharedConfig,
    place: StagePlace,
    sizes: Mapping[tuple[int, int], tuple[int, ...]],
) -> LinksConfig:
    """Return the links of the rank at a place to its peers in ``variant.pairs``, over which it sends messages.

    ``sizes`` has the sizes of all messages of an iteration from one rank to another, by their numbers.
    """
    rank_of, exchanges = variant.placement.rank, []
    own = rank_of(place)
    pairs = [pair for pair in variant.pairs if place in pair]
    for one, other in pairs:
        peer = rank_of(other if place == one else one)
        outgoing, incoming = sizes.get((own, peer), ()), sizes.get((peer, own), ())
        if outgoing or incoming:
            connections = setting.connections[one.host.name, other.host.name]
            exchanges.append(ExchangeConfig(peer, outgoing, incoming, connections))
    return LinksConfig(
        rank=own,
        pipeline=place.pipeline,
        stage=place.stage,
        peers=tuple(peer_of(point, variant, setting, place, pair) for pair in pairs),
        iterations=point.iterations(variant),
        exchanges=tuple(exchanges),
        window_bytes=None if setting.models_tcp else variant.tcp.window_bytes,
    )


def rendezvous_of(point: SweepPoint, setting: SharedConfig, place: StagePlace, rank: int) -> RendezvousConfig:
    """Return how the rank at a place meets its peers."""
    return RendezvousConfig(
        setting.addresses.address(place.host),
        FIRST_PORT + rank,
        setting.run_token,
        timeout_ns=setting.patience.rendezvous_timeout_ns(point),
        peer_timeout_s=setting.patience.peer_timeout_s,
    )


def peer_of(point: SweepPoint, variant: ResolvedVariant, setting: SharedConfig, place: StagePlace, pair: Pair) -> Peer:
    """Return the other place of a pair than ``place``; the pair's first one calls the second."""
    one, other = pair
    peer = other if place == one else one
    rank = variant.placement.rank(peer)
    connections = setting.connections[one.host.name, other.host.name]
    unsent_bytes, unread_bytes = held_bytes(point.topology, variant.tcp, pair, connections)
    return Peer(
        rank=rank,
        host=peer.host.name,
        address=setting.addresses.address_from(peer.host, place.host),
        port=FIRST_PORT + rank if place == one else None,
        connections=connections,
        unsent_bytes=unsent_bytes,
        unread_bytes=unread_bytes,
        keep_warm=variant.tcp.keep_warm,
    )


_TIMES = 2
"""TCP doubles its timer from one retransmission to the next: the first one after an outage may come an outage later."""


def peer_timeout_s(topology: Topology) -> int:
    """Return the time of silence, in whole seconds of the testbed's clock, after which a peer is lost.

    It outlasts every outage that the topology, as it is emulated, is known to have: twice the longest one, and then as
    long as where there is none.
    """
    longest_ns = max((longest_outage_ns(link) for link in topology.wan), default=0)
    return PEER_TIMEOUT_S + ceil(_TIMES * longest_ns / 1e9)
