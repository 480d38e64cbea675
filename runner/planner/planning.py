"""Plan a variant of an experiment: search its candidates by the selected search, with prices from the simulator."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Literal

from wanbed.flow.line import Line
from wanbed.ground.errors import InputError, LocatedError, prefixed
from wanbed.ground.exclusions import check_declared
from wanbed.results.text import list_text
from wanbed.runner.companions.link_changes.resolution import links_that_lose_all
from wanbed.runner.experiment.compute_spec import SlowerSpec
from wanbed.runner.experiment.sweep import SweepPointSpec
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.planner.bound import IterationBound, tokens_per_s
from wanbed.runner.planner.cost_bound import CostBound
from wanbed.runner.planner.effort import NO_LIMITS, Effort, Limits, Prices
from wanbed.runner.planner.goal import FASTEST, Figures, Goal
from wanbed.runner.planner.pricing import PricedIterations, Pricer, Spread, simulated_pricing
from wanbed.runner.planner.search import (
    Found,
    TooManyCandidatesError,
    greedy_candidates,
    promising_walks,
    search_better,
    search_exhaustively,
    search_greedily,
)
from wanbed.runner.planner.search_space import (
    Candidate,
    Priced,
    Pricing,
    Runs,
    SearchSpace,
    alike_before,
    free_gpus,
    most_pipelines,
)
from wanbed.runner.resolve.cell_costs import cell_of, transfer_in_forwards
from wanbed.runner.resolve.device_memory import most_in_flight
from wanbed.runner.resolve.encoded_activations import (
    ActivationEncoding,
    activation_encoding,
    check_activation,
    placed_encoding,
)
from wanbed.runner.resolve.layer_cut import cut_layers, layers_asked, with_layers, with_layers_each
from wanbed.runner.resolve.pipeline_resolution import Layout, resolve_pipeline
from wanbed.runner.resolve.pipeline_variant import PipelineVariant, PlannedPlacement
from wanbed.runner.resolve.placement import Placement, place_stages
from wanbed.runner.resolve.replica_times import least_costs, usual_costs
from wanbed.runner.resolve.stage_costs import StageCosts, stage_costs
from wanbed.runner.resolve.stage_memory import StageMemory, held_microbatches, stage_memory
from wanbed.runner.resolve.tcp_effects import effects_of
from wanbed.runner.resolve.written_variant import WrittenVariant, schedule_class, training_cut
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.baselines.baseline_config import BASELINE_SCHEDULES
from wanbed.workloads.profiles.model_parts import TrainingMemory
from wanbed.workloads.schedules.pipeline_shape import VirtualStages
from wanbed.workloads.schedules.schedule import Schedule

SearchName = Literal["greedy", "better", "exhaustive"]

_LEAST_SIMULATIONS, _MOST_SIMULATIONS = 10, 200

MOST_INSTANTS = 4_000_000
"""The most instants that a search for a ``placement: auto`` simulates, which takes a few minutes.

It is no time, so that a file has the same placement on every machine.
"""

NS_PER_HOUR = 3600e9

_PROMISES_S = 1.0
"""The time to find what promises the most, after a search without an answer."""

_AFFORDABLE = 60_000
"""The budget for all simulations of a search, about 1 ms for each microbatch x stage x pipeline of a DP-cell.

Only one DP-cell counts, because equal DP-cells are simulated once.
"""


@dataclass(frozen=True)
class PlannedCosts:
    """The stage costs of several pipelines, unless there is only one, on GPUs that may differ.

    ``usual`` has them without regard to which replica a GPU is; ``least`` has times that are not above those of any
    GPU, and sizes not above those of any placement. ``slower`` says which GPUs differ, and ``encoding`` how activations
    cross the WAN, None where they go as they are: only ``least`` has it in its sizes.
    """

    usual: StageCosts
    least: StageCosts
    slower: tuple[SlowerSpec, ...]
    encoding: ActivationEncoding | None = None

    def usual_in(self, placement: Placement) -> StageCosts:
        """Return the usual costs with what crosses the WAN encoded."""
        encoding = placed_encoding(self.encoding, placement, VirtualStages(placement.stages))
        return self.usual if encoding is None else encoding.costs(self.usual)


@dataclass(frozen=True)
class PlanningTask:
    """A variant whose placement is to be chosen. Equal tasks have equal plans.

    ``pipelines`` is their number, None if the planner is to choose it too. ``context`` is the number of tokens in a
    sequence, None without a model. ``options`` are the schedule's options as JSON. ``memory`` is that of each stage,
    None if the model does not tell it, and ``memory_bytes`` a GPU's, None for no limit. ``written`` is the variant that
    a candidate places. ``goal`` is what makes one candidate better than another.
    """

    topology: Topology
    stages: int
    pipelines: int | None
    microbatches: int
    memory_bound: int | tuple[int, ...] | None
    context: int | None
    transport: TransportSpec
    schedule: type[Schedule]
    options: str
    costs: PlannedCosts
    iterations: PricedIterations
    written: WrittenVariant = field(compare=False)
    goal: Goal = FASTEST
    memory: StageMemory | None = field(default=None, compare=False)
    memory_bytes: int | None = field(default=None, compare=False)

    @property
    def counted(self) -> Literal["tokens", "sequences"]:
        """The unit of throughput in this task's prices and ceilings: sequences without a model, otherwise tokens."""
        return "sequences" if self.context is None else "tokens"

    @property
    def counted_per_sequence(self) -> int:
        """The tokens of a sequence, or 1 where sequences are counted."""
        return self.context or 1

    def resolve(self, candidate: Candidate) -> PipelineVariant:
        """Return the variant of a candidate as it is simulated."""
        # What is drawn would make the price of a candidate a matter of luck.
        return resolve_pipeline(self.written, _layout(candidate)).without_variation()

    def place(self, candidate: Candidate) -> PipelineVariant:
        """Return the variant of a candidate without the plan of its schedule, which takes less time."""
        return resolve_pipeline(self.written, _layout(candidate), plans=False)


def _layout(candidate: Candidate) -> Layout:
    return Layout(candidate.stages, candidate.pipelines, candidate.pipelines_per_cell, candidate.placement)


@dataclass(frozen=True)
class LeftOut:
    """A datacenter without a stage of the chosen candidate: its free GPUs, and the best priced candidate with it.

    ``best_with`` is None if no candidate with it was priced.
    """

    free_gpus: int
    best_with: Priced | None


@dataclass(frozen=True)
class Plan:
    """The result of planning a variant: the best candidate and the runners-up.

    ``runners_up`` has the best priced candidate of every other number of DP-cells, and the greedy answer if it is not
    the chosen candidate; best first. ``unused`` has the number of unused GPUs of each datacenter, ``left_out`` each
    datacenter without a stage. ``at_most`` is the worth by ``goal`` that no candidate exceeds, by the bounds of those
    that were not simulated. ``cut_off`` is the reason why the search ended early, None if it is complete. ``ended_by``
    is the exception that a signal has raised in the search, None if there was none.
    """

    chosen: Priced
    greedy: Priced
    runners_up: tuple[Priced, ...]
    unused: Mapping[str, int]
    left_out: Mapping[str, LeftOut]
    search: SearchName
    simulations: int
    at_most: float
    cut_off: str | None
    ended_by: BaseException | None = None
    goal: Goal = FASTEST

    @property
    def within_limit(self) -> bool:
        """Tell whether the chosen candidate costs no more than was asked for; if not, it is the cheapest found."""
        return self.goal.allows(self.chosen.price.figures)

    @property
    def gap(self) -> float | None:
        """The share of the chosen candidate's worth by which another's may exceed it, 0 if proven.

        None if the candidate costs more than was asked for, and others may not.
        """
        if self.proven:
            return 0.0
        return self.at_most / self.chosen.worth - 1 if self.within_limit else None

    @property
    def proven(self) -> bool:
        """Tell whether it is proven that no candidate is better by the goal."""
        return self.at_most <= self.chosen.worth

    def found_by(self, priced: Priced) -> SearchName:
        """Return the search that found a candidate: greedy for the greedy answer, whichever search was selected."""
        return "greedy" if priced == self.greedy else self.search


def plan(
    task: PlanningTask,
    search: SearchName = "better",
    *,
    limits: Limits = NO_LIMITS,
    runners_up: int = 0,
    pricing: Pricing | None = None,
    spread: Spread | None = None,
    report: Callable[[Effort], None] | None = None,
    explained: bool = False,
) -> Plan:
    """Search for the best candidate of a task, and return the plan.

    A search ends at the first of its ``limits``. Without a limit of time the better search prices at most as many
    candidates as take about a minute, unless ``limits.simulations`` says how many. The greedy and the better search
    also price the greedy candidates of up to ``runners_up`` other numbers of DP-cells. ``pricing`` replaces the
    simulator, and ``spread`` runs several simulations at a time, which changes no result but that of a limit of time.
    ``report`` is called as the search gets on. With ``explained``, prices have their bottlenecks. A signal that
    interrupts the search ends it like a limit.

    Raises InputError, one line: naming the field if no number of pipelines fits, and the option if there are too many
    candidates for an exhaustive search. Raises NothingPricedError if the search ends before it has an answer.
    """
    effort = Effort(limits, report)
    space = search_space(task)
    effects = effects_of(task.transport)
    if spread is not None:
        pricer = Pricer(task.topology, task.counted_per_sequence, effects, task.iterations, explained)
        with spread(pricer, task.resolve, effort) as ahead:
            found = _search(task, space, search, Prices(ahead, effort, ahead.expect, task.goal), runners_up)
    else:
        pricing = pricing or simulated_pricing(
            task.topology,
            task.resolve,
            task.counted_per_sequence,
            effects,
            task.iterations,
            pulse=effort.pulse,
            explained=explained,
        )
        found = _search(task, space, search, Prices(pricing, effort, goal=task.goal), runners_up)
    chosen = found.best.candidate
    stages_in = dict(chosen.runs)
    return Plan(
        found.best,
        found.greedy,
        _runners_up(found.best, found.greedy, found.priced),
        {name: gpus - stages_in.get(name, 0) * chosen.pipelines for name, gpus in space.free_gpus.items()},
        {name: _left_out(name, gpus, found) for name, gpus in space.free_gpus.items() if name not in stages_in},
        search,
        found.simulations,
        found.at_most,
        found.cut_off,
        found.ended_by,
        task.goal,
    )


def fullest_stage(task: PlanningTask, candidate: Candidate) -> tuple[int, int, TrainingMemory] | None:
    """Return the stage whose GPUs hold the most bytes, the microbatches that it holds at once, and its memory.

    Return None where the model does not tell the memory of stages.
    """
    if task.memory is None:
        return None
    variant = task.resolve(candidate)
    memory = replace(task.memory, config=variant.cut(task.memory.config), residues_bytes=variant.residues_bytes)
    held = [
        max(most_in_flight(variant, pipeline, stage) for pipeline in range(variant.pipelines_per_cell))
        for stage in range(task.stages)
    ]
    stage = max(range(task.stages), key=lambda each: memory.of(each, held[each]).total_bytes)
    return stage, held[stage], memory.of(stage, held[stage])


@lru_cache(maxsize=1024)
def planned_placement(task: PlanningTask) -> PlannedPlacement:
    """Return the datacenter of each stage in the best candidate of a task. The result is cached.

    The search has no limit of time. Raises InputError as ``plan`` does.
    """
    found = plan(task, limits=Limits(instants=MOST_INSTANTS))
    if found.ended_by is not None:
        raise found.ended_by
    return PlannedPlacement(found.chosen.candidate.placement, found.simulations, found.cut_off)


def most_promising(task: PlanningTask, most: int) -> list[tuple[Candidate, float]]:
    """Return the greedy candidates that promise the most, each with the worth that it does not exceed.

    Nothing is simulated. Only those are compared whose bounds are computed within a second.
    """
    return promising_walks(search_space(task), ceiling(task), most, Effort(Limits(time_s=_PROMISES_S)))


def _search(task: PlanningTask, space: SearchSpace, search: SearchName, prices: Prices, runners_up: int) -> Found:
    if search == "greedy":
        return search_greedily(space, prices, ceiling(task), runners_up)
    if search == "better":

        def limit_simulations() -> None:
            effort = prices.effort
            if effort.limits.simulations is None and effort.limits.time_s is None:
                affordable = _affordable_simulations(task, space, effort)
                effort.limits = replace(effort.limits, simulations=affordable)

        return search_better(space, prices, ceiling(task), runners_up, limit_simulations=limit_simulations)
    try:
        return search_exhaustively(space, prices, ceiling(task))
    except TooManyCandidatesError as refusal:
        raise LocatedError(f"--search exhaustive: {refusal}: give --search better") from None


def _affordable_simulations(task: PlanningTask, space: SearchSpace, effort: Effort) -> int:
    """Return how many simulations take about a minute.

    The number is computed from the size of a simulation, not measured, so that a file has the same plan on every
    machine. Raises LimitReachedError at the limit of time.
    """
    largest = max(candidate.pipelines_per_cell for candidate in greedy_candidates(space, effort.check_time))
    return max(_LEAST_SIMULATIONS, min(_MOST_SIMULATIONS, _AFFORDABLE // (largest * task.stages * task.microbatches)))


def search_space(task: PlanningTask) -> SearchSpace:
    """Return all candidates of a task. Raises InputError where no number of pipelines fits."""
    gpus, transport = free_gpus(task.topology), task.transport
    step = transport.pipelines_per_cell if isinstance(transport.pipelines_per_cell, int) else 1
    most = most_pipelines(task.topology, task.stages)
    pipelines = range(step, most + 1, step) if task.pipelines is None else (task.pipelines,)
    if not pipelines or pipelines[-1] > most:
        # place_stages raises the error that an experiment with such a placement gets.
        place_stages(task.topology, task.stages, task.pipelines or step)
    return SearchSpace(
        gpus, task.stages, tuple(pipelines), _cell_size(task), alike_before(task.topology, task.costs.slower)
    )


_LARGEST_SIMULATED_CELL = 8
"""The most pipelines of a DP-cell that is larger than its transfers need. A larger one takes long to plan."""


def _cell_size(task: PlanningTask) -> Callable[[int, Runs], int | None]:
    transport = task.transport
    few_hosts = _first_hosts(task.topology, task.stages)

    @cache
    def wanted_in(runs: Runs) -> float:
        # All pipelines have the same datacenters, and only transfers between datacenters count: one pipeline is enough.
        homes = [name for name, stages in runs for _ in range(stages)]
        placement = place_stages(few_hosts, task.stages, 1, homes)
        return transfer_in_forwards(few_hosts, placement, transport, task.costs.usual_in(placement))

    def size(pipelines: int, runs: Runs) -> int | None:
        if transport.sharing == "none":
            return 1
        if isinstance(transport.pipelines_per_cell, int):
            return transport.pipelines_per_cell
        wanted = wanted_in(runs)
        cell = cell_of(pipelines, wanted)
        if task.pipelines is not None:
            return cell
        # A number of pipelines without a suitable divisor makes a single DP-cell, all of which has to be simulated.
        return cell if cell <= max(_LARGEST_SIMULATED_CELL, wanted + 1) else None

    return size


def _first_hosts(topology: Topology, most: int) -> Topology:
    """Return the topology with only the first hosts of each datacenter, ``most`` of them at most."""
    few = tuple(replace(datacenter, hosts=datacenter.hosts[:most]) for datacenter in topology.datacenters)
    return replace(topology, datacenters=few)


def ceiling(task: PlanningTask) -> Callable[[int, Runs, int | None], float]:
    """Return the ceiling of a task's candidates by its goal, from lower bounds on their iteration time and costs."""
    bound = IterationBound(
        task.topology,
        task.costs.least,
        task.transport,
        task.microbatches,
        task.memory_bound,
        splits_backward=task.schedule.splits_with(json.loads(task.options)),
        windows=effects_of(task.transport).window,
    )
    gpus = free_gpus(task.topology)
    names = frozenset(gpus)
    costs = _cost_bound(task, gpus)

    configured = task.transport.pipelines_per_cell

    def top(pipelines: int, runs: Runs, pipelines_per_cell: int | None) -> float:
        cell = configured if isinstance(configured, int) else pipelines_per_cell
        least_ns = bound.of_first(pipelines, runs, names - {name for name, _ in runs}, cell)
        per_s = tokens_per_s(pipelines, task.microbatches, task.counted_per_sequence, least_ns)
        if costs is None:
            return per_s
        usd_per_h = costs.gpus_usd_per_h(pipelines, runs)
        counted = pipelines * task.microbatches * task.counted_per_sequence
        usd = usd_per_h * least_ns / NS_PER_HOUR + costs.egress_usd(pipelines, runs)
        return task.goal.worth(Figures(per_s, usd_per_h, usd * 1e6 / counted))

    return top


def _cost_bound(task: PlanningTask, gpus: Mapping[str, int]) -> CostBound | None:
    """Return the bounds on the costs of a task's candidates, None if its goal is not about costs."""
    prices = task.topology.prices
    if prices is None or task.goal == FASTEST:
        return None
    line = Line(None, 0, effects_of(task.transport).headers, mtu_bytes=task.topology.mtu_bytes)
    return CostBound(prices, gpus, task.costs.least.activation_bytes, task.microbatches, line)


def _left_out(name: str, free_gpus: int, found: Found) -> LeftOut:
    with_it = [priced for priced in found.priced if name in priced.candidate.datacenters]
    return LeftOut(free_gpus, min(with_it, key=lambda priced: priced.rank, default=None))


def _runners_up(chosen: Priced, greedy: Priced, priced: tuple[Priced, ...]) -> tuple[Priced, ...]:
    best: dict[int, Priced] = {}
    for entry in sorted(priced, key=lambda entry: entry.rank):
        best.setdefault(entry.candidate.dp_cells, entry)
    others = {entry.candidate: entry for entry in (greedy, *best.values()) if entry != chosen}
    return tuple(sorted(others.values(), key=lambda entry: entry.rank))


def planned_places(written: WrittenVariant, pipelines: int) -> PlannedPlacement:
    """Return the datacenter of each stage in the best candidate for a variant, and how it was found."""
    return planned_placement(planning_task(written, pipelines=pipelines))


def planning_task(written: WrittenVariant, *, pipelines: int | None, goal: Goal = FASTEST) -> PlanningTask:
    """Return the planner's task for a variant with this number of ``pipelines``, None for any number.

    Raises InputError if the planner cannot place it, or does not know the costs that its ``goal`` is about.
    """
    spec, topology, variant = written.spec, written.topology, written.variant
    goal.check(topology.prices, counts_tokens=spec.model is not None)
    if variant.program is not None:
        raise InputError(f"{written.field}.program: a program runs as it is and has no plan: name another --variant")
    if variant.schedule in BASELINE_SCHEDULES:
        raise InputError(
            f"{written.field}.schedule: {variant.schedule} is a baseline, which is not simulated: it has no plan"
        )
    schedule = schedule_class(written)
    if schedule.whole_replicas:
        raise InputError(
            f"{written.field}.schedule: {variant.schedule} places whole replicas, and stages are planned: take a "
            "schedule that cuts the model into stages"
        )
    cut = training_cut(written, whole_replicas=schedule.whole_replicas)
    if cut.virtual_stages > 1:
        raise InputError(
            f"{written.field}.training.virtual_stages: {cut.virtual_stages}: the planner does not know virtual stages: "
            "take a schedule without them, and virtual_stages: 1"
        )
    most = pipelines or max(most_pipelines(topology, cut.stages), 1)
    keeps_last = not schedule.last_stage_recomputes
    layers = cut_layers(written, cut.stages, lambda costs: costs, keeps_last=keeps_last, memory_bytes=cut.memory_bytes)
    alike = with_layers(written, layers or "even")

    def costs_of(each: WrittenVariant) -> StageCosts:
        work = stage_costs(each.spec, cut.stages, most, each.directory)
        return work.keeping_last() if keeps_last else work

    check_activation(written, schedule)
    work, encoding = costs_of(alike), activation_encoding(written)
    # Where GPUs differ each candidate is cut in its own way, in which no stage has less than a layer.
    own_cuts = layers_asked(written) == "balanced" and bool(spec.compute.slower)
    bounding = with_layers_each(written, cut.stages, 1) if own_cuts else alike
    least = least_costs(written, costs_of(bounding))
    held = stage_memory(bounding, cut, schedule, recomputes=work.recomputes)
    return PlanningTask(
        topology,
        cut.stages,
        pipelines,
        cut.microbatches,
        held_microbatches(bounding, cut, schedule, held),
        None if spec.model is None else spec.model.context,
        variant.transport,
        schedule,
        json.dumps(variant.options, sort_keys=True),
        PlannedCosts(
            usual_costs(written, work),
            least if encoding is None else encoding.least(least),
            spec.compute.slower,
            encoding,
        ),
        PricedIterations.of(spec.training.iterations, spec.training.warmup),
        written,
        goal,
        stage_memory(alike, cut, schedule, recomputes=work.recomputes),
        cut.memory_bytes,
    )


def planned_points(points: Iterable[SweepPointSpec]) -> Iterator[SweepPointSpec]:
    """Yield every sweep point. Its stages are not placed, so that its ``training.pipelines`` need not fit.

    Raise InputError for a network over which nothing arrives.
    """
    for point in points:
        with prefixed(f"{point.source}: "):
            check_declared(links_that_lose_all(point.spec.topology, point.topology))
        yield point


def position_to_plan(point: SweepPointSpec, name: str | None) -> int:
    """Return the position of the variant of that name; by default of the first with schedule atlas, or the first.

    Raise InputError if there is none.
    """
    variants = point.spec.variants
    if name is None:
        return next((position for position, variant in enumerate(variants) if variant.schedule == "atlas"), 0)
    for position, variant in enumerate(variants):
        if variant.name == name:
            return position
    raise InputError(f"--variant {name}: {point.source} has {list_text([variant.name for variant in variants])}")
