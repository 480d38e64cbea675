"""Bound a trial's makespan and period from below, before it runs, and name the part that decides.

No schedule of the same placement, transport, stage costs, memory bound and kinds of actions makes an iteration shorter,
nor lets iterations follow each other faster. Iterations overlap where pipelines fill and drain: a stage begins the next
one once its own optimizer step has ended, and in an iteration of several flushes the next flush once its own work on
the one before has ended. So the period's bound is the longest of all stages' own cycles and of the
loads of links; the makespan's has the fill and drain besides. Where optimizer steps wait for all stages, no stage
begins before all have ended: the period then has the fill and drain too, with one optimizer step of the first stage.

What makes real iterations longer is left out: headers, slow start, the part of a window that a kernel gives, scatter
and gather, blocking sends and receives, turns, the way of a gradient norm.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from typing import NamedTuple, TypeVar

from wanbed.runner.bound.pipeline_chains import Chain, ChainPart, Hop, PipelineChains, StageTimes
from wanbed.runner.bound.resources import Resource, Resources, ring_times
from wanbed.runner.bound.virtual_bound import VirtualBound
from wanbed.runner.resolve.connections import count_connections
from wanbed.runner.resolve.equal_parts import equal_parts
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.placement import Pair
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.compute.replay import ReplayCosts
from wanbed.workloads.compute.varied_durations import DurationDraws
from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.schedule import Schedule, load_schedule

_Figure = TypeVar("_Figure")

BELOW = 1 - 1e-9
"""A factor that compensates for rounding errors of floating-point sums."""


@dataclass(frozen=True)
class LowerBound:
    """A time in whole nanoseconds, and the part of which it consists the most."""

    time_ns: int
    part: str


@dataclass(frozen=True)
class LowerBounds:
    """The bounds of a trial's period, and of the makespan of each of its iterations."""

    period: LowerBound
    makespan: LowerBound


def lower_bounds(topology: Topology, variant: ResolvedVariant, iterations: int = 1) -> LowerBounds | None:
    """Return the lower bounds of a variant, of whose iterations there are ``iterations``.

    Return None for a program, a trace, and a schedule of torch or of its own kinds of actions: what they compute and
    send is not known here. None too for replicas that synchronise seldom, of which few iterations send anything.
    Where compute times are drawn, the shortest of all draws counts; None for too many draws.
    """
    if not isinstance(variant, PipelineVariant) or not variant.follows_own_schedule or not variant.sums_every_iteration:
        return None
    schedule = load_schedule(variant.schedule)
    if schedule.kinds is not Schedule.kinds or schedule.sends is not Schedule.sends:
        return None
    if variant.virtual is not None:
        connections = count_connections(topology, variant.pairs, variant.transport)
        resources = Resources(topology, variant, connections)
        virtual = VirtualBound(variant, schedule, resources)
        waiting = (
            VirtualBound(_stepping_alike(variant), schedule, resources).makespans() if variant.waits_for_all else ()
        )
        return LowerBounds(_largest((*virtual.periods(), *waiting)), _largest(virtual.makespans()))
    durations = _durations_of(variant, iterations)
    if durations is None:
        return None
    trial = _TrialBound(topology, variant, schedule, durations)
    waits = variant.waits_for_all
    waiting = _TrialBound(topology, variant, schedule, durations, steps_alike=True).makespans() if waits else ()
    return LowerBounds(_largest((*trial.periods(), *waiting)), _largest(trial.makespans()))


_OPTIMIZER = "optimizer"
"""The kind of the optimizer step, beside those of actions."""

_MOST_DRAWS = 300_000
"""The most durations that are drawn to find the shortest: about a second."""

_NO_MICROBATCH = -1

_ByKind = Mapping[str, int]
"""The duration in nanoseconds of each kind of action, the optimizer among them."""


@dataclass(frozen=True)
class _Durations:
    """The durations at each GPU, by pipeline and stage. Shortest and longest differ only where times are drawn."""

    shortest: tuple[tuple[_ByKind, ...], ...]
    longest: tuple[tuple[_ByKind, ...], ...]


def _durations_of(variant: PipelineVariant, iterations: int) -> _Durations | None:
    """Return the durations in so many iterations; None if too many are drawn."""
    pipelines, stages = range(variant.pipelines), range(variant.placement.stages)
    draws = variant.pipelines * len(stages) * len(ActionKind) * variant.microbatches * iterations
    if variant.varies and draws > _MOST_DRAWS:
        return None
    if variant.replicas is None:
        same = tuple(_extremes(variant, variant.costs(0, stage), iterations)[0] for stage in stages)
        return _Durations((same,) * variant.pipelines, (same,) * variant.pipelines)
    found = [[_extremes(variant, variant.costs(p, stage), iterations) for stage in stages] for p in pipelines]
    return _Durations(
        tuple(tuple(shortest for shortest, _ in pipeline) for pipeline in found),
        tuple(tuple(longest for _, longest in pipeline) for pipeline in found),
    )


def _extremes(variant: PipelineVariant, costs: ReplayCosts, iterations: int) -> tuple[_ByKind, _ByKind]:
    usual = {kind.value: costs.durations.of(kind) for kind in ActionKind} | {_OPTIMIZER: costs.durations.optimizer_ns}
    if costs.variation is None:
        return usual, usual
    own = DurationDraws(costs.variation)
    drawn: dict[str, list[int]] = {kind: [] for kind in usual}
    for iteration, (kind, usual_ns) in product(range(iterations), usual.items()):
        microbatches = [_NO_MICROBATCH] if kind == _OPTIMIZER else range(variant.microbatches)
        drawn[kind] += [own.duration_ns(iteration, kind, microbatch, usual_ns) for microbatch in microbatches]
    return {kind: min(each) for kind, each in drawn.items()}, {kind: max(each) for kind, each in drawn.items()}


_Shares = tuple[tuple[Resource, float], ...]
"""The bits of one transfer that cross each resource."""


class _Flow(NamedTuple):
    """All transfers of an iteration in one direction between two stages, or over one hop of a ring.

    ``head_ns`` is when the first of them can begin, ``tail_ns`` what must follow the last. ``between_ns`` is the time
    from the last of them to the first of the next iteration, for all flows of the same ``way``. ``bits`` has what each
    resource carries of one transfer, of which there are ``transfers``.
    """

    head_ns: float
    tail_ns: float
    between_ns: float
    way: tuple[str, int]
    transfers: int
    bits: _Shares


def _stepping_alike(variant: PipelineVariant) -> PipelineVariant:
    """Return the variant with the first stage's optimizer step at all stages."""
    work = variant.work
    return replace(variant, work=replace(work, optimizer_ns=(work.optimizer_ns[0],) * len(work.optimizer_ns)))


def _largest(times: Iterable[tuple[float, str]]) -> LowerBound:
    time_ns, part = max(times, key=lambda each: each[0], default=(0.0, ChainPart.PATH.value))
    return LowerBound(int(time_ns * BELOW), part)


def _stage_times(variant: PipelineVariant, schedule: type[Schedule], stage: int, durations_ns: _ByKind) -> StageTimes:
    """Return the durations of one microbatch at a stage, as the schedule divides its work."""
    recomputes = variant.shape.recomputes(stage)
    splits = _splits(variant, schedule, stage)
    return StageTimes(
        durations_ns[ActionKind.FORWARD],
        durations_ns[ActionKind.RECOMPUTE] if recomputes else 0,
        durations_ns[ActionKind.BACKWARD_INPUT if splits else ActionKind.BACKWARD],
        durations_ns[ActionKind.BACKWARD_WEIGHT] if splits else 0,
        variant.shape.most_in_flight(stage),
    )


def _times_of(
    variant: PipelineVariant, schedule: type[Schedule], durations: _Durations
) -> Iterator[tuple[StageTimes, ...]]:
    """Yield the times of each pipeline's stages, the same object for pipelines of the same durations."""
    known: dict[int, tuple[StageTimes, ...]] = {}
    for pipeline in durations.shortest:
        if id(pipeline) not in known:
            known[id(pipeline)] = tuple(
                _stage_times(variant, schedule, stage, own) for stage, own in enumerate(pipeline)
            )
        yield known[id(pipeline)]


def _splits(variant: PipelineVariant, schedule: type[Schedule], stage: int) -> bool:
    return schedule.splits_backward if variant.plan is None else variant.plan.splits(stage)


class _TrialBound:
    """The bound of a variant whose stages are not divided, by the first of its equal parts.

    With ``steps_alike`` all stages take the first one's optimizer step.
    """

    def __init__(
        self,
        topology: Topology,
        variant: PipelineVariant,
        schedule: type[Schedule],
        durations: _Durations,
        *,
        steps_alike: bool = False,
    ) -> None:
        self._variant, placement = variant, variant.placement
        # Rings inside datacenters and across pass through all parts at once.
        self._parts = 1 if variant.transport.is_hierarchical else equal_parts(variant)
        pipelines = range(variant.pipelines // self._parts)
        connections = count_connections(topology, variant.pairs, variant.transport)
        self._resources = Resources(topology, variant, connections)
        self._shares: list[list[tuple[_Shares, _Shares]]] = []
        # Cell mates have the same shares, the same object.
        self._known_hops: dict[tuple[int, float, float], Hop] = {}
        for pipeline in pipelines:
            self._shares.append([self._crossed(pipeline, boundary) for boundary in range(placement.stages - 1)])
        self._chains = self._shared_chains(
            [
                (times, tuple(self._hops(pipeline)))
                for pipeline, times in zip(pipelines, _times_of(variant, schedule, durations), strict=False)
            ]
        )
        splits = (_splits(variant, schedule, stage) for stage in range(placement.stages))
        lasts = [ActionKind.BACKWARD_WEIGHT if split else ActionKind.BACKWARD for split in splits]
        self._rings = [
            ring_times(variant, self._resources, stage, max(own[stage][last] for own in durations.longest), self._parts)
            for stage, last in enumerate(lasts)
        ]
        self._optimizer_ns = [
            min(own[0 if steps_alike else stage][_OPTIMIZER] for own in durations.shortest)
            for stage in range(placement.stages)
        ]

    def makespans(self) -> Iterator[tuple[float, str]]:
        """Yield times that an iteration by itself lasts at least, each with the part that decides."""
        for stage, (ring, optimizer_ns) in enumerate(zip(self._rings, self._optimizer_ns, strict=True)):
            first, last = self._extremes(self._ends, stage)
            for chain, ring_ns in ((first, ring.after_first_ns), (last, ring.after_last_ns)):
                yield chain.end_ns + ring_ns + optimizer_ns, self._named(chain, self._ends, stage, ring_ns)
        for load in self._loads:
            yield load.with_ns(load.head_ns + load.tail_ns)

    def periods(self) -> Iterator[tuple[float, str]]:
        """Yield times that lie between two iterations at least, each with the part that decides.

        The replica that begins its iteration last ends its computation a cycle later, of the shortest one at least, and
        the all-reduce of some replica ends after that. Each replica by itself needs its own cycle, and its own sends.
        """
        flushes = self._variant.flushes
        cycles = self._of_each(lambda chains: [each.after(flushes - 1, each) for each in chains.cycles()])
        sums = self._variant.sums_an_iteration
        for stage, (ring, optimizer_ns) in enumerate(zip(self._rings, self._optimizer_ns, strict=True)):
            first, last = self._extremes(cycles, stage)
            for chain, ring_ns in ((first, sums * max(ring.after_last_ns, ring.own_ns)), (last, 0.0)):
                yield chain.end_ns + ring_ns + optimizer_ns, self._named(chain, cycles, stage, ring_ns)
        for load in self._loads:
            yield load.with_ns(0.0 if load.way is None else load.between_ns)

    @cached_property
    def _ends(self) -> list[list[Chain]]:
        """The chain before whose end each stage has not ended its computation, by pipeline."""
        before = self._variant.flushes - 1
        if not before:
            return self._of_each(PipelineChains.ends)

        def ends(chains: PipelineChains) -> list[Chain]:
            """Return the ends of the last flush: each one before has kept its stage for a cycle."""
            return [end.after(before, cycle) for end, cycle in zip(chains.ends(), chains.cycles(), strict=True)]

        return self._of_each(ends)

    @cached_property
    def _loads(self) -> list["_Load"]:
        """The load of each resource by the flows between stages, by those of rings, and by both where both cross it.

        Of loads that take the same times, the first stands for all.
        """
        training, rings = (_loads_of(flows, self._parts) for flows in (self._transfers(), self._all_reduces()))
        both = [load.together(rings[key]) for key, load in training.items() if key in rings]
        unlike: dict[tuple[object, ...], _Load] = {}
        for load in (*training.values(), *rings.values(), *both):
            unlike.setdefault(load.kind, load)
        return list(unlike.values())

    def _shared_chains(self, pipelines: Sequence[tuple[Sequence[StageTimes], Sequence[Hop]]]) -> list[PipelineChains]:
        """Return the chains of each pipeline, the same object for pipelines that are alike."""
        microbatches = self._variant.shape.flush.microbatches
        known = {each: PipelineChains(*each, microbatches) for each in dict.fromkeys(pipelines)}
        return [known[each] for each in pipelines]

    def _of_each(self, figure: Callable[[PipelineChains], _Figure]) -> list[_Figure]:
        """Return a figure of each pipeline's chains, computed once for pipelines that are alike."""
        known = {chains: figure(chains) for chains in dict.fromkeys(self._chains)}
        return [known[chains] for chains in self._chains]

    def _extremes(self, chains: list[list[Chain]], stage: int) -> tuple[Chain, Chain]:
        """Return a stage's chain of the fastest pipeline and of the slowest one."""
        own = [of_pipeline[stage] for of_pipeline in chains]
        return min(own, key=lambda chain: chain.end_ns), max(own, key=lambda chain: chain.end_ns)

    def _named(self, chain: Chain, chains: list[list[Chain]], stage: int, ring_ns: float) -> str:
        """Return the name of the longest part of a chain, with the all-reduce that follows it."""
        rest_ns = chain.end_ns - chain.part_ns
        if ring_ns > max(chain.part_ns, rest_ns):
            return f"all-reduce of stage {stage}"
        if chain.part is ChainPart.PATH or rest_ns > chain.part_ns:
            return ChainPart.PATH.value
        if chain.part in {ChainPart.GPU, ChainPart.MEMORY}:
            return f"{chain.part.value} of stage {chain.place}"
        pipeline = next(number for number, each in enumerate(chains) if each[stage] is chain)
        shares = self._shares[pipeline][chain.place][chain.part is ChainPart.LINK_BACK]
        microbatches = self._variant.microbatches
        return max(shares, key=lambda share: share[0].duration_ns(microbatches * share[1]))[0].name

    def _transfers(self) -> Iterator[_Flow]:
        microbatches, stages = self._variant.microbatches, self._variant.placement.stages
        closing_ns = [
            ring.after_last_ns + optimizer_ns
            for ring, optimizer_ns in zip(self._rings, self._optimizer_ns, strict=True)
        ]
        # Pipelines without an all-reduce do not wait for each other.
        waits = self._variant.pipelines == 1 or all(ring.loads for ring in self._rings)

        def times_ns(chains: PipelineChains) -> list[list[tuple[float, float, float]]]:
            """Return head, tail and time between of both directions of each boundary."""
            found = []
            for boundary in range(stages - 1):
                heads_ns, tails_ns = chains.sent_ns(boundary), chains.after_sent_ns(boundary, closing_ns)
                between_ns = chains.between_sent_ns(boundary, self._optimizer_ns) if waits else (0.0, 0.0)
                found.append(list(zip(heads_ns, tails_ns, between_ns, strict=True)))
            return found

        for pipeline, of_pipeline in enumerate(self._of_each(times_ns)):
            for boundary, both_ns in enumerate(of_pipeline):
                ways = zip(("there", "back"), self._shares[pipeline][boundary], both_ns, strict=True)
                for way, shares, own_ns in ways:
                    yield _Flow(*own_ns, (way, boundary), microbatches, shares)

    def _all_reduces(self) -> Iterator[_Flow]:
        sums = self._variant.sums_an_iteration
        # The first sum follows the first flush.
        ends = self._ends if sums == 1 else self._of_each(PipelineChains.ends)
        for stage, (ring, optimizer_ns) in enumerate(zip(self._rings, self._optimizer_ns, strict=True)):
            ready_ns = min(of_pipeline[stage].end_ns for of_pipeline in ends)
            for hop, hop_bits in ring.loads:
                bits = tuple((resource, hop_bits) for resource in self._resources.between(hop))
                yield _Flow(max(0.0, ready_ns - ring.begins_before_ns), optimizer_ns, 0.0, ("ring", stage), sums, bits)

    def _hops(self, pipeline: int) -> list[Hop]:
        pairs = pairwise(self._variant.placement.pipelines[pipeline])
        microbatches = self._variant.shape.flush.microbatches
        way, latency_ns = self._resources.way, self._resources.latency_ns
        found = []
        for ends, shares in zip(pairs, self._shares[pipeline], strict=True):
            key = id(shares), latency_ns(ends), latency_ns(ends[::-1])
            if key not in self._known_hops:
                there, back = shares
                self._known_hops[key] = Hop(way(ends, there, microbatches), way(ends[::-1], back, microbatches))
            found.append(self._known_hops[key])
        return found

    def _crossed(self, pipeline: int, boundary: int) -> tuple[_Shares, _Shares]:
        """Return what each direction of a boundary crosses. Cell mates carry equal shares of a transfer."""
        variant = self._variant
        cell = variant.cell(pipeline) if variant.shares(boundary) else range(pipeline, pipeline + 1)
        if cell.start < pipeline:
            return self._shares[cell.start][boundary]
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


@dataclass(slots=True)
class _Load:
    """The bits of an iteration that cross a resource, and the least times before, after and between their flows.

    ``way`` is that of all the flows, None where they differ.
    """

    resource: Resource
    bits: float
    head_ns: float
    tail_ns: float
    between_ns: float
    way: tuple[str, int] | None

    @property
    def kind(self) -> tuple[object, ...]:
        """All that decides how long the load lasts."""
        limit = self.resource.bits_per_ns, self.resource.free_bits
        return (*limit, self.bits, self.head_ns, self.tail_ns, self.between_ns, self.way)

    def add(self, flow: _Flow, bits: float) -> None:
        """Add a flow with the bits of each of its transfers here."""
        self.bits += flow.transfers * bits
        self.head_ns = min(self.head_ns, flow.head_ns)
        self.tail_ns = min(self.tail_ns, flow.tail_ns)
        self.between_ns = min(self.between_ns, flow.between_ns)
        if self.way != flow.way:
            self.way = None

    def together(self, other: "_Load") -> "_Load":
        """Return the load of the same resource by the flows of both; they go different ways."""
        return _Load(
            self.resource,
            self.bits + other.bits,
            min(self.head_ns, other.head_ns),
            min(self.tail_ns, other.tail_ns),
            min(self.between_ns, other.between_ns),
            None,
        )

    def with_ns(self, around_ns: float) -> tuple[float, str]:
        """Return the time for which the resource is used and ``around_ns``, with the name of the longer one."""
        busy_ns = self.resource.duration_ns(self.bits)
        return busy_ns + around_ns, self.resource.name if busy_ns >= around_ns else ChainPart.PATH.value


def _loads_of(flows: Iterable[_Flow], parts: int) -> dict[int, _Load]:
    """Return the load of each resource that the flows of the first of equal parts cross, by its identity."""
    loads: dict[int, _Load] = {}
    for flow in flows:
        for resource, own_bits in flow.bits:
            bits = own_bits * parts if resource.of_all_parts else own_bits
            load = loads.get(id(resource))
            if load is None:
                loads[id(resource)] = _Load(
                    resource, flow.transfers * bits, flow.head_ns, flow.tail_ns, flow.between_ns, flow.way
                )
            else:
                load.add(flow, bits)
    return loads
