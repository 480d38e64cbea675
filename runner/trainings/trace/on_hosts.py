"""Replay a trace on hosts: one process a rank, each with its part of the trace."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from wanbed.runner.emulation.rank_configs import SharedConfig, peer_of, rendezvous_of
from wanbed.runner.emulation.rank_processes import train_ranks
from wanbed.runner.emulation.running_trial import Ended, RunningTrial
from wanbed.runner.resolve.dilation import dilated_ns
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.placement import Pair, StagePlace
from wanbed.runner.trainings.trace.resolution import TraceVariant
from wanbed.workloads.trace_replay.replayed_trace import ReplayedTrace, WorkKind
from wanbed.workloads.trace_replay.trace_rank_config import TraceRankConfig
from wanbed.workloads.transport.links_config import ExchangeConfig, LinksConfig, RingConfig

RANK = "wanbed.workloads.trace_replay.trace_rank"


def train(trial: RunningTrial, begin: Callable[[], None], look: Callable[[], None]) -> Ended:
    """Run the ranks until all have replayed their part in every iteration. Raises what ``run_ranks`` does."""
    variant = trial.variant
    assert isinstance(variant, TraceVariant)
    configs = [_config(trial.point, variant, trial.setting, place) for place in variant.placement.places]
    return train_ranks(trial, RANK, configs, begin, look)


def _config(point: SweepPoint, variant: TraceVariant, setting: SharedConfig, place: StagePlace) -> TraceRankConfig:
    rank, trace = variant.placement.rank(place), variant.trace
    nodes = tuple(
        replace(node, duration_ns=dilated_ns(node.duration_ns, setting.dilation)) for node in trace.ranks[rank]
    )
    return TraceRankConfig(
        rank=rank,
        host=place.host.name,
        datacenter=place.datacenter,
        gpu=place.gpu,
        nodes=nodes,
        iterations=point.spec.training.iterations,
        links=_links(point, variant, setting, place),
        rendezvous=rendezvous_of(point, setting, place, rank),
        span_log=str(setting.span_log(rank)),
        epoch_ns=setting.epoch_ns,
        parent_pid=setting.parent_pid,
        start_gate=str(setting.start_gate),
    )


def _links(point: SweepPoint, variant: TraceVariant, setting: SharedConfig, place: StagePlace) -> LinksConfig:
    rank_of, trace = variant.placement.rank, variant.trace
    rank = rank_of(place)
    ring = next((ring for ring in variant.rings if any(place == one for one, _ in ring)), ())
    collectives = sum(node.kind is WorkKind.COLLECTIVE for node in trace.ranks[rank])
    peers = sorted({peer for pair in trace.pairs if rank in pair for peer in pair} - {rank})
    return LinksConfig(
        rank=rank,
        pipeline=place.pipeline,
        stage=place.stage,
        peers=tuple(peer_of(point, variant, setting, place, pair) for pair in variant.pairs if place in pair),
        previous=None,
        following=None,
        rings=_rings(variant, setting, ring),
        microbatches=1,
        iterations=point.spec.training.iterations * max(collectives, 1),
        window_bytes=None if setting.models_tcp else variant.tcp.window_bytes,
        exchanges=tuple(_exchange(variant, trace, setting, place, peer) for peer in peers),
    )


def _rings(variant: TraceVariant, setting: SharedConfig, pairs: Sequence[Pair]) -> tuple[RingConfig, ...]:
    if not pairs:
        return ()
    connections = max(_connections(setting, one, other) for one, other in pairs)
    return (RingConfig(tuple(variant.placement.rank(one) for one, _ in pairs), connections),)


def _exchange(
    variant: TraceVariant, trace: ReplayedTrace, setting: SharedConfig, place: StagePlace, peer: int
) -> ExchangeConfig:
    rank = variant.placement.rank(place)
    return ExchangeConfig(
        peer,
        _sizes(trace, rank, peer),
        _sizes(trace, peer, rank),
        _connections(setting, place, variant.placement.places[peer]),
    )


def _sizes(trace: ReplayedTrace, sender: int, receiver: int) -> tuple[int, ...]:
    """Return the sizes of all messages from one rank to another, by their numbers."""
    sends = [node for node in trace.ranks[sender] if node.kind is WorkKind.SEND and node.peer == receiver]
    return tuple(node.size_bytes for node in sorted(sends, key=lambda node: node.number))


def _connections(setting: SharedConfig, one: StagePlace, other: StagePlace) -> int:
    hosts = (one.host.name, other.host.name)
    return setting.connections[hosts if hosts in setting.connections else hosts[::-1]]
