"""Find what bounds the iteration of a simulated candidate: the largest part of its critical path.

The critical path divides the time after warm-up among the GPUs of stages, links, all-reduces and the schedule. Beside
it stand the busiest GPU and the busiest link of that time:

- a GPU is busy while it computes;
- a direction of a WAN link is busy for ``bytes sent / (capacity x time)``, headers included. Its capacity is the rate
  of its trunk, for the bytes of all node pairs together; or that of one node pair, for the bytes of the busiest one.
  The latter is the smaller of its rate and of what its TCP windows let out, ``connections x window / RTT``.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from wanbed.results.records.span_columns import SpanColumns
from wanbed.results.records.span_log import COMPUTE_KINDS
from wanbed.runner.planner.critical_path import Part, critical_path_ns
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.runner.tcp.effects import effects_of
from wanbed.testbed.network.flow_model.line import Line
from wanbed.testbed.network.topology import Topology

Capacity = Literal["trunk", "node_pair", "windows"]


@dataclass(frozen=True)
class PathShare:
    """The ``share`` of the critical path that belongs to a part.

    ``latency`` is the share that is the latency of a link: that of each transfer on the path, once.
    """

    part: Part
    share: float
    latency: float


@dataclass(frozen=True)
class GpuUse:
    """The GPU that computes for longest, and the share of the time for which it does."""

    stage: int
    datacenter: str
    busy: float


@dataclass(frozen=True)
class LinkUse:
    """The busiest direction of a WAN link, by the ``capacity`` of which most is used."""

    source: str
    destination: str
    capacity: Capacity
    capacity_bps: float
    busy: float


@dataclass(frozen=True)
class IterationLimits:
    """The limits of an iteration. ``path`` adds up to 1, with the largest share, the bottleneck, first.

    ``link`` is None if no WAN link that was used has a capacity.
    """

    path: tuple[PathShare, ...]
    gpu: GpuUse
    link: LinkUse | None

    def share(self, kind: str) -> float:
        """Return the share of the critical path that belongs to all parts of a kind."""
        return sum(each.share for each in self.path if each.part.kind == kind)


def bottleneck_of(topology: Topology, variant: ResolvedVariant, simulation: Simulation, warmup: int) -> IterationLimits:
    """Return what bounds the iterations after the first ``warmup`` of a simulated variant."""
    window_ns = simulation.measured_ns(warmup)
    links = _links(topology, variant, simulation, window_ns)
    return IterationLimits(
        _path(topology, variant, simulation, window_ns),
        _busiest_gpu(variant, simulation.spans, window_ns, max(warmup, 1)),
        max(links, key=lambda link: link.busy, default=None),
    )


def _path(
    topology: Topology, variant: ResolvedVariant, simulation: Simulation, window_ns: tuple[int, int]
) -> tuple[PathShare, ...]:
    path_ns, crossings = critical_path_ns(variant, simulation, window_ns[0])
    length_ns = window_ns[1] - window_ns[0]
    shares = []
    for part, own_ns in path_ns.items():
        latency_ns = 0
        if part.kind == "link":
            one, other = part.datacenters[0], part.datacenters[-1]
            latency_ns = min(crossings[part] * topology.path(one, other).latency_ns, own_ns)
        shares.append(PathShare(part, own_ns / length_ns, latency_ns / length_ns))
    return tuple(sorted(shares, key=lambda each: -each.share))


def _busiest_gpu(variant: ResolvedVariant, spans: SpanColumns, window_ns: tuple[int, int], first: int) -> GpuUse:
    places = variant.placement.places
    computes = np.isin(spans.kind, [KIND_CODES[kind] for kind in COMPUTE_KINDS]) & (spans.rank < len(places))
    computes &= spans.iteration >= first
    busy_ns = np.bincount(spans.rank[computes], (spans.end_ns - spans.start_ns)[computes], len(places))
    place = places[int(np.argmax(busy_ns))]
    return GpuUse(place.stage, place.datacenter, float(busy_ns.max()) / (window_ns[1] - window_ns[0]))


def _links(
    topology: Topology, variant: ResolvedVariant, simulation: Simulation, window_ns: tuple[int, int]
) -> Iterator[LinkUse]:
    """Yield the use of every direction of a link that something crossed and that has a capacity."""
    home = {host.name: host.datacenter for host in topology.hosts}
    length_s = (window_ns[1] - window_ns[0]) / 1e9
    on_trunk: dict[tuple[str, str], float] = defaultdict(float)
    for pair in simulation.traffic:
        ends = home[pair.source], home[pair.destination]
        before, after = pair.sent_by(np.array(window_ns))
        bits = 8.0 * float(after - before)
        on_trunk[ends] += bits
        hosts = pair.source, pair.destination
        connections = simulation.connections[hosts if hosts in simulation.connections else hosts[::-1]]
        for capacity, rate_bps in _pair_capacities(topology, variant, ends, connections):
            yield LinkUse(*ends, capacity, rate_bps, bits / (rate_bps * length_s))
    for ends, bits in on_trunk.items():
        trunk_bps = topology.conditions(*ends).rate_bps
        if trunk_bps is not None:
            yield LinkUse(*ends, "trunk", trunk_bps, bits / (trunk_bps * length_s))


def _pair_capacities(
    topology: Topology, variant: ResolvedVariant, ends: tuple[str, str], connections: int
) -> Iterator[tuple[Capacity, float]]:
    effects, rtt_ns = effects_of(variant.transport), topology.rtt_ns(*ends)
    rate_bps = topology.line_rate_bps(*ends)
    if rate_bps is not None:
        yield "node_pair", rate_bps
    if effects.window and rtt_ns:
        let_out_bytes = Line(None, rtt_ns, effects.headers).wire_bytes(connections * variant.tcp.window_bytes)
        yield "windows", let_out_bytes * 8e9 / rtt_ns
