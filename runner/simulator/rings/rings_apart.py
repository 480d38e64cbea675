"""Compute rings at once that other traffic could meet but does not, and find those that it has met.

A ring inside a datacenter shares nothing but its hosts' ports, at which other traffic arrives too. While the ring is
under way there is mostly none. So it is computed as if there were none, which takes a small part of the time; a
simulation in which some has arrived is repeated, with that ring event by event. Where compute times are drawn, each
replica is ready at another time: some traffic nearly always arrives, and nothing repeats around the ring.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from wanbed.flow.channel import Channel
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.simulator.channels.network import Ends, Network
from wanbed.runner.simulator.rings.ring_all_reduce import awaits_room
from wanbed.runner.simulator.rings.rings import Rings, ring_cut, ring_ends

_LEAST_REPLICAS = 3
"""With fewer, the ring's own bytes meet acknowledgements of what the other replica sends."""


def rings_apart(network: Network[PipelineVariant], others: Collection[Ends]) -> frozenset[int]:
    """Return the stages whose rings meet other traffic at ports only. ``others`` is where all other traffic flows."""
    variant = network.variant
    if (
        variant.overlaps_all_reduce
        or variant.varies
        or variant.transport.is_butterfly
        or variant.transport.is_chain
        or variant.transport.is_gloo
        or not variant.sums_every_iteration
        or network.topology.intra_rate_bps is None
    ):
        return frozenset()
    rings = ring_ends(network)
    joined = {frozenset((one.host.name, other.host.name)) for one, other in others}
    arrivals = Counter(network.arrival_host(pair) for ends in rings.values() for pair in ends)
    return frozenset(
        stage
        for stage, ends in rings.items()
        if variant.pipelines >= _LEAST_REPLICAS
        and all(
            one.datacenter == other.datacenter
            and one.host != other.host
            and arrivals[network.arrival_host((one, other))] == 1
            and frozenset((one.host.name, other.host.name)) not in joined
            for one, other in ends
        )
        and _is_computed_at_once(network, stage, ends)
    )


def _is_computed_at_once(network: Network[PipelineVariant], stage: int, ends: Iterable[Ends]) -> bool:
    size_bytes, cut = ring_cut(network, stage)
    return size_bytes >= cut.replicas and not awaits_room([network.line(pair) for pair in ends], cut)


def watched_hosts(network: Network[PipelineVariant], apart: Collection[int]) -> frozenset[str]:
    """Return the hosts at which the rings of the stages in ``apart`` arrive."""
    return frozenset(
        network.arrival_host(pair) for stage, ends in ring_ends(network).items() if stage in apart for pair in ends
    )


def rings_met(network: Network[PipelineVariant], rings: Rings, channels: Mapping[Ends, Channel]) -> frozenset[int]:
    """Return the stages whose rings were computed at once although other traffic has arrived at one of their ports.

    ``channels`` are those of all other traffic.
    """
    if not rings.apart:
        return frozenset()
    watched, arriving = watched_hosts(network, rings.apart), dict[str, list[Channel]]()
    for pair, channel in channels.items():
        if (host := network.arrival_host(pair)) in watched and pair[0].host != pair[1].host:
            arriving.setdefault(host, []).append(channel)
    met = set()
    for stage, ends in ring_ends(network).items():
        under_way = rings.apart[stage].under_way if stage in rings.apart else ()
        for position, pair in enumerate(ends):
            after = (position + 1) % len(ends)
            times_ns = [(ready_ns[position], ends_ns[after]) for ready_ns, ends_ns in under_way]
            if any(_sent_within(channel, times_ns) for channel in arriving.get(network.arrival_host(pair), ())):
                met.add(stage)
                break
    return frozenset(met)


def _sent_within(channel: Channel, times_ns: Iterable[tuple[int, int]]) -> bool:
    """Return whether a channel has sent between any of these times."""
    begins_ns, ends_ns, _ = np.frombuffer(channel.history, np.int64).reshape(-1, 3).T
    for begin_ns, end_ns in times_ns:
        first = int(np.searchsorted(ends_ns, begin_ns, side="right"))
        if first < len(begins_ns) and begins_ns[first] < end_ns:
            return True
    return False
