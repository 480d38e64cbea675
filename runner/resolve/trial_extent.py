"""Limit the duration, traffic and memory of a trial, computed from its numbers before anything runs.

Each single quantity has its own limit where it is defined. This module limits their products over microbatches,
iterations, stages and pipelines: beyond the limits, times and sizes do not fit into 64 bits, or no machine has the
memory.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from wanbed.ground.errors import InputError
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.resolve.connections import count_connections
from wanbed.runner.resolve.packet_draws import is_impaired
from wanbed.runner.resolve.placement import Pair, Placement, StagePlace
from wanbed.runner.resolve.stage_costs import StageCosts
from wanbed.runner.resolve.stage_rings import StageRings, ring_pairs
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.testbed.network.goodput import TCP_OVERHEAD_BYTES, tcp_goodput_bps
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.schedules.pipeline_shape import VirtualStages
from wanbed.workloads.trace_replay.replayed_trace import ReplayedTrace, WorkKind
from wanbed.workloads.transport.ring_round import bucket_count

MAX_TRIAL_NS = 100 * 365 * 86_400 * 10**9
"""A hundred years, a third of the range of 64 bits."""

MAX_TRIAL_BYTES = 2**61
"""2 EiB over the network, a quarter of the range of 64 bits."""

MAX_SPANS = 10**8
"""A simulation of this many spans takes half an hour and 30 GiB."""

MAX_WINDOWS = 10**7
"""The most windows that fill one after the other between two ranks. Each costs a simulation step and 24 bytes."""

MAX_SEGMENTS = 3 * 10**7
"""The most segments over links with loss or jitter that are simulated: each takes some 30 us."""

MAX_REQUESTS = 10**7
"""The most requests that arrive during a trial. Each one is kept."""

_YEAR_NS = 365 * 86_400 * 10**9

_LEAST_SPANS_PER_MICROBATCH = 2
"""One span for the forward and one for the backward."""

_SLOW_START_ROUNDS = 256
"""An upper bound of the round trips that a window takes to open, from any initial size and with restarts."""


@dataclass(frozen=True)
class _Path:
    """The path of a transfer between two ranks. ``window_bytes`` is None if the TCP window never limits a transfer.

    Where it ``draws``, a simulation follows single segments.
    """

    latency_ns: int
    rtt_ns: int
    goodput_bps: float | None
    window_bytes: int | None
    draws: bool = False

    def windows(self, size_bytes: int) -> int:
        """Return how many whole windows a transfer fills."""
        return 0 if self.window_bytes is None else size_bytes // self.window_bytes

    def transfer_ns(self, size_bytes: int) -> int:
        """Return an upper bound for the duration of a transfer that has the path to itself."""
        leaving_ns = 0 if self.goodput_bps is None else round(size_bytes * 8e9 / self.goodput_bps)
        rounds = 2 * self.windows(size_bytes) + _SLOW_START_ROUNDS
        return self.latency_ns + leaving_ns + rounds * self.rtt_ns


def check_extent(
    written: WrittenVariant,
    placement: Placement,
    work: StageCosts,
    microbatches: int,
    virtual: VirtualStages | None = None,
    *,
    sums: int = 1,
) -> None:
    """Raise InputError for a trial beyond the limits of this module.

    The duration assumes that all work runs one after the other; no schedule takes longer. The number of pipelines per
    DP-cell is ignored, because it is computed later, from transfers that must be within the limits already. ``sums`` is
    how many times replicas all-reduce in an iteration.
    """
    spec, transport = written.spec, written.variant.transport
    paths = _Paths(spec, written.topology, transport)
    iterations = written.iterations
    pipelines, stages = len(placement.pipelines), placement.stages
    _check_spans(work.virtual or work, microbatches * pipelines * iterations)
    computing_ns = iterations * pipelines * sum(_stage_ns(work, stage, microbatches) for stage in range(stages))
    _check_time(computing_ns, "compute.forward" if spec.compute.profile is None else "compute.profile")
    chain = [placement.chain(pipeline, virtual or VirtualStages(stages)) for pipeline in range(pipelines)]
    transfers = 2 * microbatches * iterations
    sent_ns = sent_bytes = drawn_bytes = 0
    for boundary, size_bytes in enumerate(work.activation_bytes):
        for path, count in paths.between(chain, boundary).items():
            _check_windows(path.windows(size_bytes) * transfers // 2, "compute.activation")
            legs_ns = path.transfer_ns(size_bytes)
            if transport.sharing != "none":
                legs_ns += 2 * paths.intra.transfer_ns(size_bytes)
            sent_ns += transfers * count * legs_ns
            sent_bytes += transfers * count * size_bytes
            drawn_bytes += path.draws * transfers * count * size_bytes
    _check_time(computing_ns + sent_ns, "compute.activation")
    _check_bytes(sent_bytes, "compute.activation")
    for stage, size_bytes in enumerate(work.gradient_bytes if pipelines > 1 else ()):
        buckets = bucket_count(size_bytes, transport.bucket) if transport.sums_in_buckets else 1
        _check_buckets(written, buckets * stages * pipelines * iterations)
        rings = StageRings.of(
            placement.replicas(stage),
            hierarchical=transport.is_hierarchical,
            butterfly=transport.is_butterfly,
            chained=transport.is_chain,
        )
        summed_bytes = rings.summed_bytes(-(-size_bytes // buckets))
        for level, size, level_bytes in zip(rings.levels, rings.sizes, summed_bytes, strict=True):
            segments, crossing = rings.cut(size)
            segment_bytes, crossing = -(-level_bytes // segments), iterations * sums * crossing * buckets
            for path, count in paths.of(pair for ring in level for pair in ring_pairs(ring)).items():
                _check_windows(path.windows(segment_bytes) * crossing, "compute.gradient")
                sent_ns += crossing * count * path.transfer_ns(segment_bytes)
                sent_bytes += crossing * count * segment_bytes
                drawn_bytes += path.draws * crossing * count * segment_bytes
    _check_time(computing_ns + sent_ns, "compute.gradient")
    _check_bytes(sent_bytes, "compute.gradient")
    _check_segments(spec, drawn_bytes)
    if spec.prefill is not None and spec.prefill.drawn and spec.prefill.rate is not None:
        least_ns = iterations * microbatches * max(map(sum, zip(work.forward_ns, work.backward_ns, strict=True)))
        _check_requests(spec.prefill.rate * least_ns / 1e9)


def check_trace_extent(
    written: WrittenVariant, trace: ReplayedTrace, places: Sequence[StagePlace], rings: Sequence[Sequence[Pair]]
) -> None:
    """Raise InputError for a trial that replays a trace and is beyond the limits of this module.

    ``places`` are those of the ranks, ``rings`` the pairs of neighbours in the ring of each group.
    """
    iterations, field = written.spec.training.iterations, "compute.trace"
    paths = _Paths(written.spec, written.topology, written.variant.transport)
    nodes = [(rank, node) for rank, own in enumerate(trace.ranks) for node in own]
    _check_span_count(iterations * len(nodes))
    pairs: Sequence[Pair]
    time_ns = sum(node.duration_ns for _, node in nodes)
    sent_bytes = windows = drawn_bytes = 0
    for rank, node in nodes:
        if node.kind is WorkKind.SEND:
            pairs, times, size_bytes = ((places[rank], places[node.peer]),), 1, node.size_bytes
        elif node.kind is WorkKind.COLLECTIVE and rank == trace.groups[node.group][0]:
            pairs, collective = rings[node.group], trace.collective(node)
            times, size_bytes = len(collective.steps), -(-collective.whole_bytes // len(pairs))
        else:
            continue
        for path, count in paths.of(pairs).items():
            time_ns += times * count * path.transfer_ns(size_bytes)
            sent_bytes += times * count * size_bytes
            drawn_bytes += path.draws * times * count * size_bytes
            windows += times * count * path.windows(size_bytes)
    _check_windows(iterations * windows, field)
    _check_time(iterations * time_ns, field)
    _check_bytes(iterations * sent_bytes, field)
    _check_segments(written.spec, iterations * drawn_bytes)


class _Paths:
    """The paths between ranks. All paths between the same two datacenters are equal."""

    def __init__(self, spec: ExperimentSpec, topology: Topology, transport: TransportSpec) -> None:
        self._topology, self._transport = topology, transport
        self._known: dict[tuple[str, str], _Path] = {}
        self.intra = self._path(topology.intra_latency_ns, 2 * topology.intra_latency_ns, topology.intra_rate_bps, 1)

    def between(self, pipelines: Sequence[Sequence[StagePlace]], boundary: int) -> Counter[_Path]:
        """Return the paths over a boundary, each with the number of pipelines that use it."""
        return self.of((places[boundary], places[boundary + 1]) for places in pipelines)

    def of(self, pairs: Iterable[Pair]) -> Counter[_Path]:
        """Return the paths between places on different hosts, each with the number of pairs that use it."""
        found: Counter[_Path] = Counter()
        for one, other in pairs:
            if one.host.name != other.host.name:
                ends = one.datacenter, other.datacenter
                if ends not in self._known:
                    self._known[ends] = self._between((one, other))
                found[self._known[ends]] += 1
        return found

    def _between(self, pair: Pair) -> _Path:
        ends = (pair[0].datacenter, pair[1].datacenter)
        (connections,) = count_connections(self._topology, [pair], self._transport).values()
        latency_ns, rtt_ns = self._topology.path(*ends).latency_ns, self._topology.rtt_ns(*ends)
        path = self._path(latency_ns, rtt_ns, self._topology.line_rate_bps(*ends), connections)
        follows = self._transport.model == "packets"
        is_tcp = self._transport.model != "ideal"
        return replace(path, draws=follows or (is_tcp and is_impaired(self._topology, *ends)))

    def _path(self, latency_ns: int, rtt_ns: int, rate_bps: int | None, connections: int) -> _Path:
        if self._transport.model == "ideal":
            return _Path(latency_ns, rtt_ns, rate_bps, None)
        goodput_bps = None if rate_bps is None else tcp_goodput_bps(rate_bps, self._topology.mtu_bytes)
        window_bytes = connections * self._transport.window
        in_flight_bytes = float("inf") if goodput_bps is None else goodput_bps / 8 * rtt_ns / 1e9
        held_up = rtt_ns > 0 and window_bytes < in_flight_bytes
        return _Path(latency_ns, rtt_ns, goodput_bps, window_bytes if held_up else None)


def _stage_ns(work: StageCosts, stage: int, microbatches: int) -> int:
    split_ns = work.backward_input_ns[stage] + work.backward_weight_ns[stage]
    one_ns = work.forward_ns[stage] + work.recompute_ns[stage] + max(work.backward_ns[stage], split_ns)
    return microbatches * one_ns + work.optimizer_ns[stage]


def _check_time(time_ns: int, field: str) -> None:
    if time_ns > MAX_TRIAL_NS:
        raise InputError(
            f"{field}: one after the other, all work takes {time_ns / _YEAR_NS:.3g} years, and "
            f"{MAX_TRIAL_NS // _YEAR_NS} at most are run: give less of it, or fewer microbatches or iterations"
        )


def _check_bytes(size_bytes: int, field: str) -> None:
    if size_bytes > MAX_TRIAL_BYTES:
        raise InputError(
            f"{field}: {size_bytes / 2**60:.3g} EiB are sent in all, more than {MAX_TRIAL_BYTES // 2**60}: "
            "give less of it, or fewer microbatches or iterations"
        )


def _check_segments(spec: ExperimentSpec, drawn_bytes: int) -> None:
    segments = drawn_bytes // (spec.topology.mtu - TCP_OVERHEAD_BYTES)
    if spec.engine == "simulate" and segments > MAX_SEGMENTS:
        raise InputError(
            f"topology.wan: {segments:.3g} segments cross links with loss or jitter, and {MAX_SEGMENTS:.3g} at most "
            "are simulated one by one: give fewer iterations or microbatches, smaller transfers, or engine: emulate"
        )


def _check_windows(windows: int, field: str) -> None:
    if windows > MAX_WINDOWS:
        raise InputError(
            f"{field}: one connection or group of them fills {windows} windows one after the other, more "
            f"than {MAX_WINDOWS}: give less of it, a larger transport.window, or more connections"
        )


def _check_spans(work: StageCosts, microbatches: int) -> None:
    _check_span_count(
        microbatches * (_LEAST_SPANS_PER_MICROBATCH * work.stages + sum(work.recomputes) + 4 * (work.stages - 1))
    )


def _check_span_count(spans: int) -> None:
    if spans > MAX_SPANS:
        raise InputError(
            f"training.iterations: {spans:.3g} spans to keep, more than {MAX_SPANS:.3g}: give fewer "
            "iterations or microbatches, pipelines or stages"
        )


def _check_buckets(written: WrittenVariant, spans: int) -> None:
    if spans > MAX_SPANS:
        raise InputError(
            f"{written.field}.transport.bucket: {spans:.3g} spans of all-reduces to keep, more than {MAX_SPANS:.3g}: "
            "give larger buckets"
        )


def _check_requests(requests: float) -> None:
    if requests > MAX_REQUESTS:
        raise InputError(
            f"prefill.rate: {requests:.3g} requests or more come while this trains, {MAX_REQUESTS:.3g} at "
            "most are kept: give a lower rate, or fewer iterations"
        )
