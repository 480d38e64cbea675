"""Bound the time of a trial's iteration from below, before it runs, and name the part that decides.

No schedule of the same placement, transport, stage costs, memory bound and kinds of actions makes an iteration shorter.
What makes real iterations longer is left out: headers, slow start, the part of a window that a kernel gives, scatter
and gather, blocking sends, turns.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from runner.bound.durations import OPTIMIZER, ByKind, Durations, durations_of
from runner.bound.pipeline_chains import Chain, Hop, Part, PipelineChains, StageTimes
from runner.bound.resources import Resource, Resources
from runner.bound.rings import ring_times
from runner.bound.virtual_bound import VirtualBound
from runner.resolve.connection_count import count_connections
from runner.resolve.placement import Pair
from runner.resolve.resolved_variant import ResolvedVariant
from testbed.network.topology import Topology
from workloads.schedules.action import ActionKind
from workloads.schedules.schedule import Schedule, load_schedule

BELOW = 1 - 1e-9
"""A factor that compensates for rounding errors of floating-point sums."""


_Shares = tuple[tuple[Resource, float], ...]
"""The bits of one transfer that cross each resource."""


@dataclass(frozen=True)
class LowerBound:
    """A time below which no iteration comes, in whole nanoseconds, and the part of which it consists the most."""

    time_ns: int
    part: str


@dataclass(frozen=True, slots=True)
class _Flow:
    """All transfers of an iteration in one direction between two stages, or over one hop of a ring.

    ``head_ns`` is when the first of them can begin, ``tail_ns`` what must follow the last. ``bits`` has what each
    resource carries of one transfer, of which there are ``count``.
    """

    head_ns: float
    tail_ns: float
    count: int
    bits: _Shares


def lower_bound(topology: Topology, variant: ResolvedVariant, iterations: int = 1) -> LowerBound | None:
    """Return the lower bound of a variant's iterations, of which there are ``iterations``.

    Return None for a program, a trace, and a schedule of torch or of its own kinds of actions: what they compute and
    send is not known here. None too for replicas that synchronise seldom, of which few iterations send anything.
    Where compute times are drawn, the shortest of all draws counts; None for too many draws.
    """
    if variant.program is not None or variant.trace is not None or variant.is_baseline:
        return None
    if variant.synchronization is not None:
        return None
    schedule = load_schedule(variant.schedule)
    if schedule.kinds is not Schedule.kinds or schedule.sends is not Schedule.sends:
        return None
    if variant.virtual is not None:
        connections = count_connections(topology, variant.pairs, variant.transport, variant.clock)
        time_ns, part = VirtualBound(variant, schedule, Resources(topology, variant, connections)).lowest()
        return LowerBound(int(time_ns * BELOW), part)
    durations = durations_of(variant, iterations)
    return None if durations is None else _TrialBound(topology, variant, schedule, durations).lowest()


def stage_times(variant: ResolvedVariant, schedule: type[Schedule], stage: int, durations_ns: ByKind) -> StageTimes:
    """Return the durations of one microbatch at a stage, as the schedule divides its work."""
    last = stage == variant.placement.stages - 1
    recomputes = variant.shape.recomputes(stage) and (schedule.last_stage_recomputes or not last)
    splits = schedule.splits_backward
    return StageTimes(
        durations_ns[ActionKind.FORWARD],
        durations_ns[ActionKind.RECOMPUTE] if recomputes else 0,
        durations_ns[ActionKind.BACKWARD_INPUT if splits else ActionKind.BACKWARD],
        durations_ns[ActionKind.BACKWARD_WEIGHT] if splits else 0,
        variant.shape.most_in_flight(stage),
    )


class _TrialBound:
    def __init__(
        self, topology: Topology, variant: ResolvedVariant, schedule: type[Schedule], durations: Durations
    ) -> None:
        self._variant, placement = variant, variant.placement
        connections = count_connections(topology, variant.pairs, variant.transport, variant.clock)
        self._resources = Resources(topology, variant, connections)
        boundaries = range(placement.stages - 1)
        self._shares = [
            [self._crossed(pipeline, boundary) for boundary in boundaries] for pipeline in range(variant.pipelines)
        ]
        self._times = [
            [stage_times(variant, schedule, stage, own) for stage, own in enumerate(pipeline)]
            for pipeline in durations.shortest
        ]
        self._chains = [
            PipelineChains(times, self._hops(pipeline), variant.microbatches)
            for pipeline, times in enumerate(self._times)
        ]
        last = ActionKind.BACKWARD_WEIGHT if schedule.splits_backward else ActionKind.BACKWARD
        self._rings = [
            ring_times(variant, self._resources, stage, max(own[stage][last] for own in durations.longest))
            for stage in range(placement.stages)
        ]
        self._optimizer_ns = [
            min(own[stage][OPTIMIZER] for own in durations.shortest) for stage in range(placement.stages)
        ]

    def lowest(self) -> LowerBound:
        """Return the largest of all times that an iteration is known to take at least."""
        ends = [chains.ends() for chains in self._chains]
        times = [*self._stage_times(ends), *self._resource_times(ends)]
        time_ns, part = max(times, key=lambda each: each[0], default=(0.0, Part.PATH.value))
        return LowerBound(int(time_ns * BELOW), part)

    def _stage_times(self, ends: list[list[Chain]]) -> Iterator[tuple[float, str]]:
        """Yield when each stage of the slowest pipeline, and its all-reduce, can have ended."""
        for stage, (ring, optimizer_ns) in enumerate(zip(self._rings, self._optimizer_ns, strict=True)):
            chains = [of_pipeline[stage] for of_pipeline in ends]
            first = min(chains, key=lambda chain: chain.end_ns)
            last = max(chains, key=lambda chain: chain.end_ns)
            for chain, ring_ns in ((first, ring.after_first_ns), (last, ring.after_last_ns)):
                yield chain.end_ns + ring_ns + optimizer_ns, self._named(chain, chains, stage, ring_ns)

    def _named(self, chain: Chain, chains: list[Chain], stage: int, ring_ns: float) -> str:
        """Return the name of the longest part of a chain, with the all-reduce that follows it."""
        rest_ns = chain.end_ns - chain.part_ns
        if ring_ns > max(chain.part_ns, rest_ns):
            return f"all-reduce of stage {stage}"
        if chain.part is Part.PATH or rest_ns > chain.part_ns:
            return Part.PATH.value
        if chain.part in {Part.GPU, Part.MEMORY}:
            return f"{chain.part.value} of stage {chain.place}"
        pipeline = next(number for number, each in enumerate(chains) if each is chain)
        shares = self._shares[pipeline][chain.place][chain.part is Part.LINK_BACK]
        microbatches = self._variant.microbatches
        return max(shares, key=lambda share: share[0].duration_ns(microbatches * share[1]))[0].name

    def _resource_times(self, ends: list[list[Chain]]) -> Iterator[tuple[float, str]]:
        """Yield how long each resource is in use: by transfers between stages, by rings, and by both."""
        training, rings = list(self._transfers()), list(self._all_reduces(ends))
        for flows in (training, rings, [*training, *rings] if training and rings else []):
            loads: dict[int, float] = defaultdict(float)
            used: dict[int, Resource] = {}
            heads_ns: dict[int, float] = defaultdict(lambda: inf)
            tails_ns: dict[int, float] = defaultdict(lambda: inf)
            for flow in flows:
                for resource, bits in flow.bits:
                    key = id(resource)
                    used[key] = resource
                    loads[key] += flow.count * bits
                    heads_ns[key] = min(heads_ns[key], flow.head_ns)
                    tails_ns[key] = min(tails_ns[key], flow.tail_ns)
            for key, resource in used.items():
                busy_ns, around_ns = resource.duration_ns(loads[key]), heads_ns[key] + tails_ns[key]
                yield busy_ns + around_ns, resource.name if busy_ns >= around_ns else Part.PATH.value

    def _transfers(self) -> Iterator[_Flow]:
        microbatches, stages = self._variant.microbatches, self._variant.placement.stages
        for pipeline, chains in enumerate(self._chains):
            closing_ns = [
                ring.after_last_ns + optimizer_ns
                for ring, optimizer_ns in zip(self._rings, self._optimizer_ns, strict=True)
            ]
            for boundary in range(stages - 1):
                heads_ns, tails_ns = chains.sent_ns(boundary), chains.after_sent_ns(boundary, closing_ns)
                for shares, head_ns, tail_ns in zip(self._shares[pipeline][boundary], heads_ns, tails_ns, strict=True):
                    yield _Flow(head_ns, tail_ns, microbatches, shares)

    def _all_reduces(self, ends: list[list[Chain]]) -> Iterator[_Flow]:
        for stage, (ring, optimizer_ns) in enumerate(zip(self._rings, self._optimizer_ns, strict=True)):
            ready_ns = min(of_pipeline[stage].end_ns for of_pipeline in ends)
            for hop, hop_bits in ring.loads:
                bits = tuple((resource, hop_bits) for resource in self._resources.between(hop))
                yield _Flow(max(0.0, ready_ns - ring.begins_before_ns), optimizer_ns, 1, bits)

    def _hops(self, pipeline: int) -> list[Hop]:
        pairs, microbatches = pairwise(self._variant.placement.pipelines[pipeline]), self._variant.microbatches
        way = self._resources.way
        return [
            Hop(way(ends, there, microbatches), way(ends[::-1], back, microbatches))
            for ends, (there, back) in zip(pairs, self._shares[pipeline], strict=True)
        ]

    def _crossed(self, pipeline: int, boundary: int) -> tuple[_Shares, _Shares]:
        """Return what each direction of a boundary crosses. Cell mates carry equal shares of a transfer."""
        variant = self._variant
        cell = variant.cell(pipeline) if variant.shares(boundary) else range(pipeline, pipeline + 1)
        mates = [variant.placement.pipelines[mate][boundary : boundary + 2] for mate in cell]
        bits = 8.0 * variant.work.activation_bytes[boundary] / len(mates)
        return (
            self._added_up([(one, other) for one, other in mates], bits),
            self._added_up([(other, one) for one, other in mates], bits),
        )

    def _added_up(self, ways: list[Pair], bits: float) -> _Shares:
        found: dict[int, tuple[Resource, float]] = {}
        for way in ways:
            for resource in self._resources.between(way):
                _, before = found.get(id(resource), (resource, 0.0))
                found[id(resource)] = resource, before + bits
        return tuple(found.values())
