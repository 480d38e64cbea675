"""Replay a trace on hosts: one process a rank, each with its part of the trace."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from wanbed.runner.emulation.rank_configs import SharedConfig, connected_config, message_links
from wanbed.runner.emulation.rank_processes import train_ranks
from wanbed.runner.emulation.running_trial import Ended, RunningTrial
from wanbed.runner.resolve.dilation import dilated_ns
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.placement import Pair, StagePlace
from wanbed.runner.trainings.trace.resolution import TraceVariant
from wanbed.workloads.trace_replay.replayed_trace import ReplayedTrace, TraceNode, WorkKind
from wanbed.workloads.trace_replay.trace_rank_config import TraceRankConfig
from wanbed.workloads.transport.links_config import LinksConfig, RingConfig, RingsConfig

RANK = "wanbed.workloads.trace_replay.trace_rank"


def train(trial: RunningTrial, begin: Callable[[], None], look: Callable[[], None]) -> Ended:
    """Run the ranks until all have replayed their part in every iteration. Raises what ``run_ranks`` does."""
    variant = trial.variant
    assert isinstance(variant, TraceVariant)
    configs = [_config(trial.point, variant, trial.setting, place) for place in variant.placement.places]
    return train_ranks(trial, RANK, configs, begin, look)


def _config(point: SweepPoint, variant: TraceVariant, setting: SharedConfig, place: StagePlace) -> TraceRankConfig:
    own = variant.trace.ranks[variant.placement.rank(place)]
    nodes = tuple(replace(node, duration_ns=dilated_ns(node.duration_ns, setting.dilation)) for node in own)
    connected = connected_config(point, variant, setting, place, _links(point, variant, setting, place))
    return TraceRankConfig(**vars(connected), nodes=nodes)


def _links(point: SweepPoint, variant: TraceVariant, setting: SharedConfig, place: StagePlace) -> LinksConfig:
    own = variant.trace.ranks[variant.placement.rank(place)]
    ring = next((ring for ring in variant.rings if any(place == one for one, _ in ring)), ())
    collectives = sum(node.kind is WorkKind.COLLECTIVE for node in own)
    links = message_links(point, variant, setting, place, _sizes(variant.trace))
    iterations = links.iterations * max(collectives, 1)
    return replace(links, rings=RingsConfig(_rings(variant, setting, ring)), iterations=iterations)


def _rings(variant: TraceVariant, setting: SharedConfig, pairs: Sequence[Pair]) -> tuple[RingConfig, ...]:
    if not pairs:
        return ()
    connections = max(_connections(setting, one, other) for one, other in pairs)
    return (RingConfig(tuple(variant.placement.rank(one) for one, _ in pairs), connections),)


def _sizes(trace: ReplayedTrace) -> dict[tuple[int, int], tuple[int, ...]]:
    """Return the sizes of all messages from one rank to another, by their numbers."""
    sends: dict[tuple[int, int], list[TraceNode]] = defaultdict(list)
    for rank, nodes in enumerate(trace.ranks):
        for node in nodes:
            if node.kind is WorkKind.SEND:
                sends[rank, node.peer].append(node)
    by_number = {ranks: sorted(found, key=lambda node: node.number) for ranks, found in sends.items()}
    return {ranks: tuple(node.size_bytes for node in found) for ranks, found in by_number.items()}


def _connections(setting: SharedConfig, one: StagePlace, other: StagePlace) -> int:
    hosts = (one.host.name, other.host.name)
    return setting.connections[hosts if hosts in setting.connections else hosts[::-1]]
