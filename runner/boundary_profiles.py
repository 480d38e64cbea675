"""What a plan made ahead is told of the network: how long a transfer occupies each stage boundary, and its latency.

Everything follows from what the experiment asks for, not from a measurement, so that the same file gives the same plan.
"""

from collections import Counter
from math import ceil

from runner.connection_count import window_bps
from runner.experiment_model import Clock, TransportSpec
from runner.placement import Placement
from runner.stage_work import StageWork
from testbed.calibration import tcp_goodput_bps
from testbed.topology import Topology
from workloads.schedules.cell_plan import BoundaryProfile


def boundary_profiles(
    topology: Topology,
    placement: Placement,
    transport: TransportSpec,
    work: StageWork,
    pipelines_per_cell: int,
    *,
    clock: Clock,
    trunks_shared: bool = True,
) -> tuple[BoundaryProfile, ...]:
    """One profile for each boundary of a pipeline, for transfers of its activation size.

    A transfer lasts ``activation / goodput`` where the goodput is that of the node pair's rate, or of its share of the
    trunk where all pairs of the boundary send at once (``trunks_shared``; else of the whole trunk), or of
    ``connections x window / RTT``, whichever is least. A
    boundary that crosses the WAN is shared where there are several pipelines in a cell, and a transfer then lasts
    1/C of that. Where pipelines differ, the slowest of them counts. An ideal transport has neither window nor headers.
    """
    profiles = []
    on_link = Counter(
        (one.datacenter, other.datacenter) for one, other in placement.boundaries if one.datacenter != other.datacenter
    )
    for boundary, activation_bytes in enumerate(work.activation_bytes):
        latency_ns, bits_per_s = 0, float("inf")
        for pipeline in placement.pipelines:
            one, other = pipeline[boundary], pipeline[boundary + 1]
            if one.datacenter != other.datacenter:
                conditions = topology.conditions(one.datacenter, other.datacenter)
                shares = on_link[one.datacenter, other.datacenter] if trunks_shared else 1
                trunk_bps = float("inf") if conditions.rate_bps is None else conditions.rate_bps / shares
                pair_bps = float("inf") if conditions.pair_rate_bps is None else conditions.pair_rate_bps
                here_ns, wire_bps = conditions.latency_ns, min(pair_bps, trunk_bps)
            elif one.host != other.host:
                here_ns = topology.intra_latency_ns
                wire_bps = float("inf") if topology.intra_rate_bps is None else topology.intra_rate_bps
            else:
                continue
            latency_ns = max(latency_ns, here_ns)
            bits_per_s = min(bits_per_s, _goodput_bps(transport, wire_bps), _window_bps(transport, clock, here_ns))
        shared = pipelines_per_cell > 1 and placement.crosses_wan(boundary)
        parts = pipelines_per_cell if shared else 1
        occupancy_ns = ceil(activation_bytes * 8 * 1e9 / bits_per_s / parts)
        profiles.append(BoundaryProfile(latency_ns, occupancy_ns, shared))
    return tuple(profiles)


def transfer_in_forwards(
    topology: Topology, placement: Placement, transport: TransportSpec, work: StageWork, *, clock: Clock
) -> float:
    """The longest transfer of an activation over the WAN, in forwards of the stage that sends it; 1 at least.

    That is the ratio of communication to computation of a microbatch. A trunk that is full does not count: more node
    pairs do not make it faster.
    """
    profiles = boundary_profiles(topology, placement, transport, work, 1, clock=clock, trunks_shared=False)
    ratios = [
        profile.occupancy_ns / max(work.forward_ns[boundary], 1)
        for boundary, profile in enumerate(profiles)
        if placement.crosses_wan(boundary)
    ]
    return max([1.0, *ratios])


def pipelines_to_share(
    topology: Topology, placement: Placement, transport: TransportSpec, work: StageWork, *, clock: Clock
) -> int:
    """How many pipelines make a DP-cell: ``transfer_in_forwards``, rounded up to a divisor of the number of pipelines.

    One where no boundary crosses the WAN.
    """
    pipelines = len(placement.pipelines)
    if not any(placement.crosses_wan(boundary) for boundary in range(placement.stages - 1)):
        return 1
    wanted = ceil(transfer_in_forwards(topology, placement, transport, work, clock=clock))
    return next((count for count in range(wanted, pipelines) if pipelines % count == 0), pipelines)


def _goodput_bps(transport: TransportSpec, wire_bps: float) -> float:
    return wire_bps if transport.model == "ideal" else tcp_goodput_bps(wire_bps)


def _window_bps(transport: TransportSpec, clock: Clock, latency_ns: int) -> float:
    if transport.model == "ideal" or transport.connections == "auto":
        return float("inf")
    return transport.connections * window_bps(transport, clock, latency_ns)
