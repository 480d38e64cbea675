"""Enumerate candidates: all ways to place consecutive stages in datacenters with enough GPUs.

A candidate is a place where a model can be trained. Its price decides whether it is preferred to another.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from wanbed.runner.experiment.compute_spec import SlowerSpec
from wanbed.runner.planner.bottleneck import IterationLimits
from wanbed.runner.planner.goal import Figures
from wanbed.testbed.network.links.wan_link import LinkConditions
from wanbed.testbed.network.topology import Host, Topology

SECONDS_PER_HOUR = 3600

Runs = tuple[tuple[str, int], ...]
"""Pairs of a datacenter and its number of consecutive stages, in order of stages. Each datacenter occurs once."""


@dataclass(frozen=True)
class Candidate:
    """A candidate: ``dp_cells`` DP-cells of ``pipelines_per_cell`` pipelines, all with the same stages and places.

    All replicas of a stage are in the datacenter that ``runs`` gives. Raises ValueError for a count below 1, and for a
    datacenter that occurs twice.
    """

    dp_cells: int
    pipelines_per_cell: int
    runs: Runs

    def __post_init__(self) -> None:
        if min(self.dp_cells, self.pipelines_per_cell, *(stages for _, stages in self.runs)) < 1:
            raise ValueError(f"{self}: a count is below 1")
        if len(set(self.datacenters)) < len(self.runs):
            raise ValueError(f"{self}: a datacenter occurs twice, but can hold only consecutive stages")

    @property
    def pipelines(self) -> int:
        """The number of pipelines in all DP-cells together."""
        return self.dp_cells * self.pipelines_per_cell

    @property
    def stages(self) -> int:
        """The number of stages in each pipeline."""
        return sum(stages for _, stages in self.runs)

    @property
    def gpus(self) -> int:
        """The number of GPUs that train."""
        return self.pipelines * self.stages

    @property
    def datacenters(self) -> tuple[str, ...]:
        """The datacenters that train, in order of stages."""
        return tuple(name for name, _ in self.runs)

    @property
    def placement(self) -> tuple[str, ...]:
        """The datacenter of each stage."""
        return tuple(name for name, stages in self.runs for _ in range(stages))


@dataclass(frozen=True)
class IterationCost:
    """What GPUs cost an hour, and what an iteration costs for the bytes that it sends over the WAN."""

    gpus_usd_per_h: float
    egress_usd: float

    def usd(self, iteration_time_s: float) -> float:
        """Return what an iteration of that length costs."""
        return self.gpus_usd_per_h * iteration_time_s / SECONDS_PER_HOUR + self.egress_usd

    def figures(self, iteration_time_s: float, tokens_per_s: float) -> Figures:
        """Return the costs of training at that pace."""
        usd = self.usd(iteration_time_s)
        return Figures(
            tokens_per_s,
            self.gpus_usd_per_h + self.egress_usd * SECONDS_PER_HOUR / iteration_time_s,
            usd * 1e6 / (tokens_per_s * iteration_time_s),
        )


@dataclass(frozen=True)
class Price:
    """The figures of one iteration of a candidate. ``wan_bytes`` includes headers.

    ``bottleneck`` says what bounds the iteration, None if it was not looked for. ``cost`` is None without prices.
    """

    iteration_time_s: float
    tokens_per_s: float
    gpu_utilization: float
    wan_bytes: int
    bottleneck: IterationLimits | None = None
    cost: IterationCost | None = None

    @property
    def figures(self) -> Figures:
        """The figures by which candidates are compared; without prices nothing costs anything."""
        cost = self.cost or IterationCost(0.0, 0.0)
        return cost.figures(self.iteration_time_s, self.tokens_per_s)


Pricing = Callable[[Candidate], Price]
"""Returns the price of a candidate. Equal candidates have equal prices."""


@dataclass(frozen=True)
class Priced:
    """A candidate, its price, and what it is worth by the goal of the plan (``wanbed.runner.planner.goal``)."""

    candidate: Candidate
    price: Price
    worth: float

    @property
    def rank(self) -> tuple[float, float, float, int, int]:
        """The sort key, lowest first: worth the most, cheapest, quickest, fewest datacenters, fewest GPUs.

        Of two candidates with the same rank, a search keeps the one that it prices first.
        """
        candidate = self.candidate
        figures = self.price.figures
        return -self.worth, figures.usd_per_million, -figures.tokens_per_s, len(candidate.runs), candidate.gpus


CellSize = Callable[[int, Runs], int | None]
"""Returns the pipelines of a DP-cell for a number of pipelines and their runs, None to skip that number there."""


@dataclass(frozen=True)
class SearchSpace:
    """The candidates with ``stages`` stages and any number of pipelines in ``pipelines`` (ascending).

    ``free_gpus`` has every datacenter in the topology's order. ``alike`` has for each datacenter the earlier ones that
    are equivalent: a search need not try the datacenter while one of those is unused.
    """

    free_gpus: Mapping[str, int]
    stages: int
    pipelines: tuple[int, ...]
    cell_size: CellSize
    alike: Mapping[str, tuple[str, ...]]

    def room(self, pipelines: int) -> dict[str, int]:
        """Return how many stages fit in each datacenter, with all replicas of a stage in one datacenter."""
        return {name: gpus // pipelines for name, gpus in self.free_gpus.items()}

    def candidate(self, pipelines: int, runs: Runs) -> Candidate | None:
        """Return the candidate with these pipelines and runs, None if ``cell_size`` skips it."""
        size = self.cell_size(pipelines, runs)
        return None if size is None else Candidate(pipelines // size, size, runs)

    def next_runs(self, pipelines: int, runs: Runs, *, all_alike: bool) -> Iterator[Runs]:
        """Yield every extension of ``runs``, which hold the first stages, that leaves room for all later stages.

        Datacenters come in the topology's order, more stages first. With ``all_alike`` also yield extensions that
        differ from another one only by the names of equivalent datacenters.
        """
        left = self.stages - sum(stages for _, stages in runs)
        used = {name for name, _ in runs}
        room = {name: count for name, count in self.room(pipelines).items() if name not in used}
        everywhere = sum(room.values())
        for name, here in room.items():
            if not all_alike and any(other not in used for other in self.alike[name]):
                continue
            for stages in range(min(here, left), 0, -1):
                if left - stages <= everywhere - here:
                    yield (*runs, (name, stages))


def free_gpus(topology: Topology) -> dict[str, int]:
    """Return the GPUs of each datacenter, in the topology's order."""
    return {datacenter.name: sum(host.gpus for host in datacenter.hosts) for datacenter in topology.datacenters}


def most_pipelines(topology: Topology, stages: int) -> int:
    """Return the most pipelines of ``stages`` stages that fit, with all replicas of a stage in one datacenter."""
    free = free_gpus(topology).values()
    fitting = (
        pipelines
        for pipelines in range(sum(free) // stages, 0, -1)
        if sum(gpus // pipelines for gpus in free) >= stages
    )
    return next(fitting, 0)


def alike_before(topology: Topology, slower: Sequence[SlowerSpec] = ()) -> dict[str, tuple[str, ...]]:
    """Return for each datacenter the earlier equivalent ones, with the same hosts and the same links to all others.

    Swapping two of them changes a placement only in its names. Their GPUs are equally fast where ``slower`` says how
    fast each is, and cost the same.
    """
    prices = {} if topology.prices is None else topology.prices.of_gpu
    hosts = {
        entry.name: (prices.get(entry.name), [(host.gpus, _speed(host, slower)) for host in entry.hosts])
        for entry in topology.datacenters
    }
    names = list(hosts)
    return {
        name: tuple(
            other
            for other in names[:position]
            if hosts[other] == hosts[name] and _same_links(topology, other, name, names)
        )
        for position, name in enumerate(names)
    }


def _speed(host: Host, slower: Sequence[SlowerSpec]) -> tuple[tuple[object, ...], ...]:
    """Return the slowness of a host's GPUs, by the entries that name the host or its datacenter."""
    return tuple(
        (entry.pipeline, entry.stage, entry.factor, entry.actions)
        for entry in slower
        if (entry.datacenter, entry.host) != (None, None)
        and entry.datacenter in {None, host.datacenter}
        and entry.host in {None, host.name}
    )


def _same_links(topology: Topology, one: str, other: str, names: Sequence[str]) -> bool:
    def of(source: str, destination: str) -> tuple[LinkConditions, float | None]:
        prices = {} if topology.prices is None else topology.prices.of_gb
        return topology.conditions(source, destination), prices.get((source, destination))

    return of(one, other) == of(other, one) and all(
        of(one, third) == of(other, third) and of(third, one) == of(third, other)
        for third in names
        if third not in {one, other}
    )
