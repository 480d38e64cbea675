"""Describe an experiment by short traits, so that errors can be grouped by what their experiments have in common."""

from collections import Counter
from collections.abc import Iterator

from wanbed.results.text import count_text
from wanbed.runner.resolve.connections import count_connections, network_demand
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.pipeline_variant import PipelineVariant, in_pipelines
from wanbed.runner.resolve.placement import Pair
from wanbed.runner.resolve.stage_rings import ring_pairs
from wanbed.testbed.network.topology import Topology

KIB, MIB = 2**10, 2**20
SIZE_BOUNDS = (64 * KIB, MIB, 16 * MIB)
_SIZE_WORDS = ("up to 64 KiB", "64 KiB to 1 MiB", "1 to 16 MiB", "above 16 MiB")


def traits(point: SweepPoint) -> tuple[str, ...]:
    """Return the traits of the sweep point's only variant, each as a few words."""
    variant = in_pipelines(*point.variants)
    return (
        variant.spec.schedule,
        *_of_places(point.topology, variant),
        *_of_transfers(variant),
        *_of_rates(point.topology, variant),
        *_of_transport(point.topology, variant),
    )


def _of_places(topology: Topology, variant: PipelineVariant) -> Iterator[str]:
    yield count_text(len(topology.datacenters), "datacenter")
    if len({(len(each.hosts), each.hosts[0].gpus) for each in topology.datacenters}) > 1:
        yield "datacenters differ"
    hosts = Counter(place.host.name for place in variant.placement.places)
    if max(hosts.values()) > 1:
        yield "ranks share hosts"
    configured = variant.spec.placement
    if configured is None:
        yield "default placement"
    else:
        yield "placed pipeline by pipeline" if not isinstance(configured[0], str) else "placed stage by stage"
    if variant.pipelines > 1:
        yield "several pipelines"
    if any(one.datacenter == other.datacenter and one.host != other.host for one, other in variant.pairs):
        yield "traffic inside a datacenter"
    if 1 < variant.pipelines_per_cell < variant.pipelines:
        yield "several cells"


def _of_transfers(variant: PipelineVariant) -> Iterator[str]:
    if variant.work.activation_bytes:
        yield f"activations {_size(max(variant.work.activation_bytes))}"
    if len({*variant.work.activation_bytes}) > 1:
        yield "activations differ"
    rings = list(_rings(variant))
    if not rings:
        yield "no sums of gradients"
        return
    yield f"gradients {_size(max(variant.work.gradient_bytes))}"
    wan = [any(one.datacenter != other.datacenter for one, other in ring) for ring in rings]
    if any(wan):
        yield "rings over the WAN"
    if sum(wan) > 1:
        yield "several rings over the WAN"
    if not all(wan):
        yield "rings inside a datacenter"


def _rings(variant: PipelineVariant) -> Iterator[list[Pair]]:
    """Yield the neighbours of each ring that all-reduces more than a few bytes between hosts."""
    for stage, size_bytes in enumerate(variant.work.gradient_bytes):
        for ring in variant.rings(stage).rings if size_bytes > variant.pipelines else ():
            if neighbours := [pair for pair in ring_pairs(ring) if pair[0].host != pair[1].host]:
                yield neighbours


def _of_rates(topology: Topology, variant: PipelineVariant) -> Iterator[str]:
    demand = network_demand(topology, variant.pairs)
    demand_bps: Counter[tuple[str, str]] = Counter()
    for pair in demand.wan_pairs:
        link = (topology.host(pair.source).datacenter, topology.host(pair.destination).datacenter)
        demand_bps[link] += pair.rate_bps or 0
    trunks = {link: topology.conditions(*link).rate_bps for link in demand_bps}
    if any(rate_bps is not None and demand_bps[link] > rate_bps for link, rate_bps in trunks.items()):
        yield "a trunk that is full"
    elif any(rate_bps is not None for rate_bps in trunks.values()):
        yield "a trunk with room"
    arriving: Counter[str] = Counter()
    for pair in (*demand.wan_pairs, *demand.intra_pairs):
        arriving[pair.destination] += pair.rate_bps or 0
    port_bps = topology.intra_rate_bps
    if port_bps is None:
        yield "ports without a limit"
    elif any(rate_bps > port_bps for rate_bps in arriving.values()):
        yield "a port that more could arrive at"
    if len({(each.latency_ns, each.rate_bps) for link in topology.wan for _, each in link.directions}) > 1:
        yield "links differ"


def _of_transport(topology: Topology, variant: PipelineVariant) -> Iterator[str]:
    transport = variant.transport
    if variant.pipelines_per_cell > 1:
        yield "temporal sharing"
    connections = max(count_connections(topology, variant.pairs, transport).values(), default=1)
    yield (
        "one connection"
        if connections == 1
        else "2 to 15 connections"
        if connections < 16
        else "16 connections or more"
    )
    if transport.connections == "auto":
        yield "auto connections"
    if transport.keep_warm or not transport.slow_start_after_idle:
        yield "no slow start after idle"
    limits = set(_limits(topology, variant))
    if limits:
        yield "windows limit" if True in limits else "rates limit"
    if variant.work.recomputes[0]:
        yield "recomputes"


def _limits(topology: Topology, variant: PipelineVariant) -> Iterator[bool]:
    """Yield for each node pair across the WAN whether its TCP windows limit it more than its rate."""
    counts = count_connections(topology, variant.pairs, variant.transport)
    for one, other in variant.pairs:
        if one.datacenter != other.datacenter:
            in_flight = counts[one.host.name, other.host.name] * variant.tcp.window_bytes
            needed = topology.pair_in_flight_bytes(one.datacenter, other.datacenter)
            yield needed is None or in_flight < needed


def _size(size_bytes: int) -> str:
    return next(
        (word for bound, word in zip(SIZE_BOUNDS, _SIZE_WORDS, strict=False) if size_bytes <= bound), _SIZE_WORDS[-1]
    )
