"""Find what bounds the iteration of a simulated candidate: the largest part of its critical path.

The critical path divides the time after warm-up among the GPUs of stages, links, all-reduces and the schedule. It is
followed backwards from the end of the last span. Each computation began because of whatever ended last: the previous
work of its GPU, or the arrival of the tensor that it needs. In the first case the path goes on at that work, in the
second at the computation that made the tensor, and the time between making and arrival is the link's: queueing,
sending, latency. An all-reduce goes back to the replica that was ready last: to the all-reduce before it, or to the
computation that made its gradients, which goes on meanwhile if all-reduces overlap with backwards. A computation that
began later than both was held back by its schedule; an optimizer step that did waited for what its GPU still had to
send, which is the link's time. Where sends block, a computation waits for its GPU's previous send too. Where
receives block, a tensor that was made before its receiver had come to the receive goes back to the work before that,
and the link's time has the request in it. So every
nanosecond of the path belongs to exactly one part.

Beside it stand the busiest GPU and the busiest link of that time:

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
import numpy.typing as npt

from wanbed.flow.line import Line
from wanbed.results.records.span_columns import SpanColumns
from wanbed.results.records.span_log import COMPUTE_KINDS
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.resolve.tcp_effects import effects_of
from wanbed.runner.simulator.simulation import KIND_CODES, Simulation
from wanbed.testbed.network.topology import Topology

_FORWARD, _ALL_REDUCE = KIND_CODES["forward"], KIND_CODES["all_reduce"]
_OPTIMIZER, _SEND, _RECEIVE = KIND_CODES["optimizer"], KIND_CODES["send"], KIND_CODES["receive"]
_MAKE_GRADIENTS = {KIND_CODES["backward"], KIND_CODES["backward_input"]}
_NEED_GRADIENTS = _MAKE_GRADIENTS | {KIND_CODES["recompute"]}
_NORM = KIND_CODES["norm"]
_SUMS = {_ALL_REDUCE, _NORM}
_WORK = sorted({*(KIND_CODES[kind] for kind in COMPUTE_KINDS), *_SUMS, _OPTIMIZER})


@dataclass(frozen=True)
class Part:
    """The owner of a stretch of the critical path.

    ``kind`` is ``computing`` or ``all_reduce`` of a ``stage``, ``norm`` of the gradients of all stages, ``link``
    between ``datacenters`` (only one if both ends are in it), or ``schedule``, which holds a ``stage`` back.
    """

    kind: str
    datacenters: tuple[str, ...]
    stage: int | None = None


def critical_path_ns(
    variant: ResolvedVariant, simulation: Simulation, begin_ns: int
) -> tuple[dict[Part, int], dict[Part, int]]:
    """Return how much of the critical path since ``begin_ns`` belongs to each part, and how often it crosses each link.

    The first add up to the time from ``begin_ns`` to the end of the last work.
    """
    path_ns: dict[Part, int] = defaultdict(int)
    crossings: dict[Part, int] = defaultdict(int)
    for part, from_ns, to_ns, crosses in _Walk(variant, simulation).stretches():
        path_ns[part] += max(to_ns - max(from_ns, begin_ns), 0)
        if crosses and from_ns >= begin_ns:
            crossings[part] += 1
        if from_ns <= begin_ns:
            break
    return {part: own_ns for part, own_ns in path_ns.items() if own_ns}, dict(crossings)


class _Rank:
    """The spans of one rank. ``work`` has the positions of computations, all-reduces and optimizer steps in order."""

    def __init__(self, rank: int, spans: npt.NDArray[np.int64]) -> None:
        kind = spans[:, 0]
        self.work = [tuple(row) for row in spans[np.isin(kind, _WORK)].tolist()]
        self.number: dict[tuple[bool, int, int], int] = {}
        self.of_sum: dict[tuple[int, int], list[int]] = defaultdict(list)
        for number, (kind_code, iteration, microbatch, *_) in enumerate(self.work):
            if kind_code == _FORWARD or kind_code in _MAKE_GRADIENTS:
                self.number[kind_code == _FORWARD, iteration, microbatch] = number
            elif kind_code in _SUMS:
                self.of_sum[kind_code, iteration].append(number)
        self.arrival_ns = {
            (peer, iteration, microbatch): end_ns
            for _, iteration, microbatch, _, end_ns, peer in spans[kind == _RECEIVE].tolist()
        }
        self.sent: dict[int, tuple[int, int]] = {}
        self.sends: dict[tuple[int, int, bool], tuple[int, int]] = {}
        for _, iteration, microbatch, _, end_ns, peer in spans[kind == _SEND].tolist():
            self.sent[iteration] = max(self.sent.get(iteration, (0, 0)), (end_ns, peer))
            self.sends[iteration, microbatch, peer > rank] = end_ns, peer

    def held(self, number: int) -> tuple[int, int]:
        """Return when the tensor that a work made had left this GPU, and for which rank; (0, 0) if it sent none."""
        kind, iteration, microbatch, *_ = self.work[number]
        made = kind == _FORWARD or kind in _MAKE_GRADIENTS
        return self.sends.get((iteration, microbatch, kind == _FORWARD), (0, 0)) if made else (0, 0)

    def before(self, number: int) -> tuple[int, int]:
        """Return the work that ended last before a work began, and when; -1 and 0 if it is the first.

        An all-reduce may begin in the middle of the computation that makes its gradients, which counts as ended there.
        """
        kind, _, _, start_ns, *_ = self.work[number]
        found, ended_ns = -1, 0
        for earlier in range(number - 1, -1, -1):
            of, _, _, _, end_ns, _ = self.work[earlier]
            if of not in _SUMS and kind == _ALL_REDUCE:
                end_ns = min(end_ns, start_ns)
            if found < 0 or end_ns > ended_ns:
                found, ended_ns = earlier, end_ns
            if of not in _SUMS:
                break
        return found, ended_ns

    def computed_before(self, number: int) -> int:
        """Return the computation before a work, -1 if there is none."""
        return next((each for each in range(number - 1, -1, -1) if self.work[each][0] not in _SUMS), -1)


class _Walk:
    """Walks back through the spans of a simulation without prefill."""

    def __init__(self, variant: ResolvedVariant, simulation: Simulation) -> None:
        self._places, self._stages = variant.placement.places, variant.placement.stages
        spans = simulation.spans
        joins = np.isin(spans.kind, sorted(_SUMS))
        columns = (spans.kind, spans.rank, spans.iteration, spans.start_ns)
        self._joined: dict[tuple[int, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for kind, rank, iteration, start_ns in zip(*(column[joins].tolist() for column in columns), strict=True):
            self._joined[self._group(kind, rank), iteration][rank].append(start_ns)
        self._rank_of_span, self._end_ns = spans.rank, np.where(np.isin(spans.kind, _WORK), spans.end_ns, 0)
        self._rows = np.stack(
            (spans.kind, spans.iteration, spans.microbatch, spans.start_ns, spans.end_ns, spans.peer), axis=1
        )
        self._ranks: dict[int, _Rank] = {}
        self._sends_block, self._receives_block = variant.sends_block, variant.receives_block

    def stretches(self) -> Iterator[tuple[Part, int, int, bool]]:
        """Yield each stretch of the path, the last one first: part, start, end, and whether a transfer crosses it."""
        rank = int(self._rank_of_span[np.argmax(self._end_ns)])
        number = len(self._spans(rank).work) - 1
        cut_ns: int | None = None
        while number >= 0:
            kind, iteration, microbatch, start_ns, end_ns, _ = self._spans(rank).work[number]
            end_ns = end_ns if cut_ns is None else cut_ns
            if kind in _SUMS:
                rank, number, start_ns = self._last_ready(kind, rank, iteration, number)
                yield Part("norm", ()) if kind == _NORM else self._part("all_reduce", rank), start_ns, end_ns, False
            else:
                yield self._part("computing", rank), start_ns, end_ns, False
            before, before_ns = self._spans(rank).before(number)
            computed = self._spans(rank).computed_before(number)
            held_ns, held_by = self._spans(rank).held(computed) if computed >= 0 and self._sends_block else (0, rank)
            held_ns = held_ns if held_ns <= start_ns else 0
            maker = self._maker(rank, kind, iteration, microbatch)
            free_ns = max(before_ns, held_ns)
            if maker is not None and free_ns < maker[2] <= start_ns:
                other, made, arrival_ns = maker
                made_ns, link = self._spans(other).work[made][4], self._link(rank, other)
                yield self._part("schedule", rank), arrival_ns, start_ns, False
                if made_ns >= free_ns or not self._receives_block:
                    yield link, made_ns, arrival_ns, True
                    rank, number, cut_ns = other, made, None
                    continue
                # The request crosses the link before the tensor does.
                yield link, free_ns, arrival_ns, True
                yield link, free_ns, free_ns, True
                start_ns = free_ns
            if held_ns > before_ns:
                yield self._part("schedule", rank), held_ns, start_ns, False
                yield self._link(rank, held_by), self._spans(rank).work[computed][4], held_ns, False
                number, cut_ns = computed, None
                continue
            sent_ns, peer = self._spans(rank).sent.get(iteration, (0, rank))
            sending = kind == _OPTIMIZER and sent_ns > before_ns
            yield self._link(rank, peer) if sending else self._part("schedule", rank), before_ns, start_ns, False
            number, cut_ns = before, before_ns

    def _maker(self, rank: int, kind: int, iteration: int, microbatch: int) -> tuple[int, int, int] | None:
        """Return the rank that made the tensor that a computation needs, by which work, and its arrival; or None."""
        stage = rank % self._stages
        if kind == _FORWARD and stage > 0:
            other = rank - 1
        elif kind in _NEED_GRADIENTS and stage < self._stages - 1:
            other = rank + 1
        else:
            return None
        arrival_ns = self._spans(rank).arrival_ns.get((other, iteration, microbatch))
        number = self._spans(other).number.get((kind == _FORWARD, iteration, microbatch))
        return None if arrival_ns is None or number is None else (other, number, arrival_ns)

    def _last_ready(self, kind: int, rank: int, iteration: int, number: int) -> tuple[int, int, int]:
        """Return the rank that joined the rank's all-reduce last, the number of that work of it, and its start."""
        bucket = self._spans(rank).of_sum[kind, iteration].index(number)
        joined = self._joined[self._group(kind, rank), iteration]
        start_ns, _, other = max((starts_ns[bucket], other == rank, other) for other, starts_ns in joined.items())
        return other, self._spans(other).of_sum[kind, iteration][bucket], start_ns

    def _group(self, kind: int, rank: int) -> int:
        """Return the number of the ranks that sum together: the stage of gradients, and one for the norm of all."""
        return self._stages if kind == _NORM else rank % self._stages

    def _spans(self, rank: int) -> _Rank:
        if rank not in self._ranks:
            first, last = np.searchsorted(self._rank_of_span, (rank, rank + 1))
            self._ranks[rank] = _Rank(rank, self._rows[first:last])
        return self._ranks[rank]

    def _part(self, kind: str, rank: int) -> Part:
        return Part(kind, (self._places[rank].datacenter,), rank % self._stages)

    def _link(self, rank: int, other: int) -> Part:
        return Part("link", tuple(sorted({self._places[each].datacenter for each in (rank, other)})))


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
            # A transfer that was under way when the time began has had its latency before.
            latency_ns = min(crossings.get(part, 0) * topology.path(one, other).latency_ns, own_ns)
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
    """Yield the use of every direction of a link that something crossed and that has a capacity.

    Of the node pairs of equal parts, those of the first part stand for all.
    """
    home = {host.name: host.datacenter for host in topology.hosts}
    length_s = (window_ns[1] - window_ns[0]) / 1e9
    on_trunk: dict[tuple[str, str], float] = defaultdict(float)
    parts = simulation.parts * simulation.copies
    for pair in simulation.traffic_of_part:
        ends = home[pair.source], home[pair.destination]
        before, after = pair.sent_by(np.array(window_ns))
        bits = 8.0 * float(after - before)
        on_trunk[ends] += parts * bits
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
        line = Line(None, rtt_ns, effects.headers, None, topology.mtu_bytes)
        let_out_bytes = line.wire_bytes(connections * variant.tcp.window_bytes)
        yield "windows", let_out_bytes * 8e9 / rtt_ns
