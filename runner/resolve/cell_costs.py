"""Estimate the costs of a DP-cell, from which a planned schedule makes its plan: transfers, all-reduces, stages.

Everything is computed from the configured topology and transport, not from measurements, so that the same file always
gives the same plan. TCP windows are those of the simulator, so that a plan and its simulation agree on the time of a
transfer.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil, inf

from wanbed.flow.channel import PrivateChannel
from wanbed.flow.line import Line
from wanbed.flow.striping import Striping
from wanbed.flow.window import opened
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.resolve.connections import count_connections, tcp_settings, window_bps
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.placement import Pair, Placement
from wanbed.runner.resolve.stage_costs import StageCosts
from wanbed.runner.resolve.stage_rings import StageRings, ring_pairs
from wanbed.testbed.network.goodput import tcp_goodput_bps
from wanbed.testbed.network.tcp_settings import TcpSettings
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.message import MessageKind
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts
from wanbed.workloads.transport.frame import HEADER_BYTES, Cutting
from wanbed.workloads.transport.gloo_sum import gloo_ns


def cell_costs(topology: Topology, variant: PipelineVariant) -> CellCosts:
    """Return the stage costs and boundary costs of a DP-cell of the variant, slow start of TCP included.

    If DP-cells differ, the result has the slowest links of all. A plan is for one flush: where an iteration has several
    and sums once, each has its share of the time between iterations.
    """
    placement, transport, work = variant.placement, variant.transport, variant.work
    share = 1 if variant.sums_flushes else variant.flushes
    return CellCosts(
        variant.shape.flush,
        variant.pipelines_per_cell,
        work.forward_ns,
        work.backward_ns,
        work.recompute_ns,
        boundary_costs(topology, placement, transport, work, variant.pipelines_per_cell),
        tuple(each_ns // share for each_ns in between_iterations_ns(topology, placement, transport, work)),
        backward_input_ns=work.backward_input_ns,
        backward_weight_ns=work.backward_weight_ns,
        sends_block=variant.sends_block,
    )


def boundary_costs(
    topology: Topology,
    placement: Placement,
    transport: TransportSpec,
    work: StageCosts,
    pipelines_per_cell: int,
    *,
    trunks_shared: bool = True,
) -> tuple[BoundaryCosts, ...]:
    """Return the costs of each stage boundary of a pipeline, for transfers of the boundary's activation size.

    A transfer occupies the boundary for ``activation / goodput``. The goodput is the minimum of three: the goodput of
    the node pair's rate; the goodput of the node pair's part of the trunk when all pairs send at once (of the whole
    trunk without ``trunks_shared``); and ``connections x window / RTT``. With C pipelines in a DP-cell, a boundary that
    crosses the WAN is shared and a transfer lasts 1/C of that. If pipelines differ, the slowest one counts. An ideal
    transport has neither windows nor headers.

    The costs also hold the TCP windows of the connections (``links``), which open slowly and close again after idle.
    Where the directions of a link differ, gradients have costs of their own.
    """
    estimate = _Estimate(topology, transport)
    on_link: Counter[tuple[str, str]] = Counter()
    if trunks_shared:
        ends = ((one.datacenter, other.datacenter) for one, other in placement.boundaries)
        on_link.update(each for each in ends if each[0] != each[1])
    back_on_link = {ends[::-1]: count for ends, count in on_link.items()}
    costs = []
    for boundary, activation_bytes in enumerate(work.activation_bytes):
        pairs = [(pipeline[boundary], pipeline[boundary + 1]) for pipeline in placement.pipelines]
        shared = pipelines_per_cell > 1 and placement.crosses_wan(boundary)
        parts = pipelines_per_cell if shared else 1
        there = estimate.costs(pairs, activation_bytes, parts, on_link)
        if any(_differs_back(topology, *ends) for ends in {(one.datacenter, other.datacenter) for one, other in pairs}):
            back = estimate.costs([pair[::-1] for pair in pairs], activation_bytes, parts, back_on_link)
            there = replace(there, gradients=back)
        costs.append(there)
    return tuple(costs)


def between_iterations_ns(
    topology: Topology, placement: Placement, transport: TransportSpec, work: StageCosts
) -> tuple[int, ...]:
    """Return each stage's time in ns between two iterations: the all-reduce of its gradients, and the optimizer.

    With P replicas, A bytes and rate R of the slowest hop, a ring takes ``2 (P - 1) / P x A / R``, and at least
    ``2 (P - 1)`` latencies. Of hierarchical rings those across follow those inside, and are followed by them. The rings
    of all stages share the trunks that they cross. A butterfly sends twice 1/P of A over each of its hops. A chain
    sends A to one replica, and then from it. Of Gloo's chunks there are two in a round trip at most.
    """
    found = []
    of_stages = [
        StageRings.of(
            placement.replicas(stage),
            hierarchical=transport.is_hierarchical,
            butterfly=transport.is_butterfly,
            chained=transport.is_chain,
        )
        for stage in range(placement.stages)
    ]
    on_link = Counter((one.datacenter, other.datacenter) for rings in of_stages for one, other in rings.pairs)
    for rings, gradient_bytes, optimizer_ns in zip(of_stages, work.gradient_bytes, work.optimizer_ns, strict=True):
        all_reduce_ns = 0
        for level, size, level_bytes in zip(rings.levels, rings.sizes, rings.summed_bytes(gradient_bytes), strict=True):
            pairs = [pair for ring in level for pair in ring_pairs(ring)]
            paths = _paths(topology, pairs, transport, on_link)
            if paths and level_bytes:
                steps, rounds = 2 * (size - 1), 1 if level is rings.levels[-1] else 2
                segments, crossing = rings.cut(size)
                bits_per_s = min(_path_bps(topology, transport, path) for path in paths)
                latency_ns = max(path.latency_ns for path in paths)
                send_ns = crossing * level_bytes * 8 * 1e9 / bits_per_s / segments
                if rings.chained:
                    all_reduce_ns += ceil(send_ns + steps * latency_ns)
                elif transport.is_gloo:
                    all_reduce_ns += ceil(gloo_ns(level_bytes, size, bits_per_s, max(path.rtt_ns for path in paths)))
                else:
                    all_reduce_ns += ceil(max(steps * latency_ns, send_ns + rounds * latency_ns))
        found.append(all_reduce_ns + optimizer_ns)
    return tuple(found)


def transfer_in_forwards(topology: Topology, placement: Placement, transport: TransportSpec, work: StageCosts) -> float:
    """Return the longest transfer of an activation over the WAN, in forwards of the sending stage; at least 1.

    This is the ratio of communication to computation of a microbatch. The shared trunk rate is ignored, because more
    node pairs do not make a full trunk faster.
    """
    costs = boundary_costs(topology, placement, transport, work, 1, trunks_shared=False)
    ratios = [
        boundary_cost.of(kind).occupancy_ns / max(work.forward_ns[boundary], 1)
        for boundary, boundary_cost in enumerate(costs)
        for kind in MessageKind
        if placement.crosses_wan(boundary)
    ]
    return max([1.0, *ratios])


def pipelines_to_share(topology: Topology, placement: Placement, transport: TransportSpec, work: StageCosts) -> int:
    """Return the number of pipelines in a DP-cell.

    This is ``transfer_in_forwards``, rounded up to a divisor of the number of pipelines; 1 if no boundary crosses the
    WAN.
    """
    pipelines = len(placement.pipelines)
    if not any(placement.crosses_wan(boundary) for boundary in range(placement.stages - 1)):
        return 1
    return cell_of(pipelines, transfer_in_forwards(topology, placement, transport, work))


def cell_of(pipelines: int, forwards: float) -> int:
    """Return the pipelines of a DP-cell whose transfers last that many forwards: rounded up to a divisor of all."""
    return next((count for count in range(ceil(forwards), pipelines) if pipelines % count == 0), pipelines)


@dataclass(frozen=True, order=True)
class _Path:
    """The way from one host to another: one-way latency, rate on the wire, TCP connections, latency of the way back."""

    latency_ns: int
    wire_bps: float
    connections: int
    back_ns: int

    @property
    def rtt_ns(self) -> int:
        """The latencies of both ways."""
        return self.latency_ns + self.back_ns


@dataclass(frozen=True)
class _Estimate:
    topology: Topology
    transport: TransportSpec

    def costs(
        self, pairs: list[Pair], activation_bytes: int, parts: int, on_link: Mapping[tuple[str, str], int]
    ) -> BoundaryCosts:
        """Return the costs of one direction of a boundary, which the ``parts`` pipelines of a DP-cell may share."""
        topology, transport = self.topology, self.transport
        settings = None if transport.model == "ideal" else tcp_settings(transport)
        paths = _paths(topology, pairs, transport, on_link)
        goodputs_bps = [_path_bps(topology, transport, path) for path in paths]
        occupancy_ns = ceil(activation_bytes * 8 * 1e9 / min(goodputs_bps, default=inf) / parts)
        latency_ns = max((path.latency_ns for path in paths), default=0)
        tcp = [_tcp(topology, path, settings, activation_bytes, parts) for path in paths] if settings else []
        # If pipelines differ, take the path where a new connection is slowest.
        links = max((each for each in tcp if each is not None), key=lambda each: each.cold_ns, default=None)
        return BoundaryCosts(latency_ns, occupancy_ns, parts > 1, links)


MOST_WINDOWS = 100
"""A transfer of at most this many windows is followed round by round. The time of a longer one is computed from the
line's rate and the windows' rate: following every round would take long, and the few rounds in which windows open add
little."""


@dataclass(frozen=True)
class BoundaryTcp:
    """The TCP connections of one node pair, for transfers of one size over an unshared line.

    ``size_bytes`` is the node pair's share of a transfer, ``striping`` its distribution over the connections.
    ``settings`` are the hosts' TCP settings. ``mates_ns`` is the time of a chunk between two cell mates on either side,
    0 without temporal sharing.
    """

    line: Line
    size_bytes: int
    settings: TcpSettings
    striping: Striping
    mates_ns: int = 0

    def opened(self) -> "OpenBoundary":
        """Return newly opened connections."""
        return OpenBoundary(self)

    @property
    def cold_ns(self) -> int:
        """The time of the first transfer on new connections, until its last byte has arrived."""
        return self.opened().send(0)[1]


class OpenBoundary:
    """The state of the connections of one direction of a boundary."""

    def __init__(self, tcp: BoundaryTcp) -> None:
        self._tcp = tcp
        self._channel = PrivateChannel(tcp.line, opened(tcp.line, tcp.striping.connections, tcp.settings))

    def send(self, ready_ns: int) -> tuple[int, int]:
        """Send the next transfer after the previous ones. Return when its last byte has left, and when it arrives."""
        tcp = self._tcp
        _, whole_ns = self._channel.transmit(ready_ns + tcp.mates_ns, tcp.size_bytes, tcp.striping)
        return self._channel.free_ns, whole_ns + tcp.line.latency_ns + tcp.mates_ns


def _differs_back(topology: Topology, here: str, there: str) -> bool:
    return here != there and topology.conditions(here, there) != topology.conditions(there, here)


def _paths(
    topology: Topology,
    pairs: Iterable[Pair],
    transport: TransportSpec,
    on_link: Mapping[tuple[str, str], int],
) -> list[_Path]:
    """Return each distinct path between places on different hosts.

    ``on_link`` counts the pairs that share a trunk. A trunk that it lacks is used by one pair alone.
    """
    apart = {(one.datacenter, other.datacenter): (one, other) for one, other in pairs if one.host != other.host}
    return sorted({_path(topology, pair, transport, on_link) for pair in apart.values()})


def _path(topology: Topology, pair: Pair, transport: TransportSpec, on_link: Mapping[tuple[str, str], int]) -> _Path:
    one, other = pair
    connections = next(iter(count_connections(topology, [pair], transport).values()))
    if one.datacenter == other.datacenter:
        rate_bps = topology.intra_rate_bps
        latency_ns = topology.intra_latency_ns
        return _Path(latency_ns, inf if rate_bps is None else rate_bps, connections, latency_ns)
    conditions = topology.conditions(one.datacenter, other.datacenter)
    shares = on_link.get((one.datacenter, other.datacenter), 1)
    trunk_bps = inf if conditions.rate_bps is None else conditions.rate_bps / shares
    line_bps = topology.line_rate_bps(one.datacenter, other.datacenter)
    back_ns = topology.conditions(other.datacenter, one.datacenter).latency_ns
    return _Path(conditions.latency_ns, min(inf if line_bps is None else line_bps, trunk_bps), connections, back_ns)


def _tcp(
    topology: Topology, path: _Path, settings: TcpSettings, activation_bytes: int, parts: int
) -> BoundaryTcp | None:
    """Return the TCP model of a path, None if the rate alone determines a transfer's time."""
    share_bytes = activation_bytes // parts
    if not path.rtt_ns or share_bytes > MOST_WINDOWS * path.connections * settings.window_bytes:
        return None
    cutting = Cutting(activation_bytes, parts, path.connections)
    mtu_bytes = topology.mtu_bytes
    mates = Line(topology.intra_rate_bps, topology.intra_latency_ns, True, None, mtu_bytes)
    return BoundaryTcp(
        Line(
            None if path.wire_bps == inf else max(int(path.wire_bps), 1), path.latency_ns, True, path.back_ns, mtu_bytes
        ),
        share_bytes + cutting.chunks * HEADER_BYTES // parts,
        settings,
        Striping(path.connections, len(cutting.chunks_of(0)), cutting.largest_bytes),
        0 if parts == 1 else mates.latency_ns + mates.duration_ns(cutting.largest_bytes),
    )


def _path_bps(topology: Topology, transport: TransportSpec, path: _Path) -> float:
    """Return the rate of a path for payload: that of its line or of its windows. An ideal transport has the line's."""
    if transport.model == "ideal":
        return path.wire_bps
    goodput_bps = tcp_goodput_bps(path.wire_bps, topology.mtu_bytes)
    if transport.connections == "auto":
        return goodput_bps
    return min(goodput_bps, transport.connections * window_bps(transport, path.rtt_ns))
