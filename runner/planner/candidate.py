"""The candidates of the planner (places where a model can be trained), their prices and their order of preference."""

from collections.abc import Callable
from dataclasses import dataclass

from wanbed.runner.planner.bottleneck import IterationLimits

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
class Price:
    """The figures of one iteration of a candidate. ``wan_bytes`` includes headers.

    ``bottleneck`` says what bounds the iteration, None if it was not looked for.
    """

    iteration_time_s: float
    tokens_per_s: float
    gpu_utilization: float
    wan_bytes: int
    bottleneck: IterationLimits | None = None


Pricing = Callable[[Candidate], Price]
"""Returns the price of a candidate. Equal candidates have equal prices."""


@dataclass(frozen=True)
class Priced:
    """A candidate and its price."""

    candidate: Candidate
    price: Price

    @property
    def rank(self) -> tuple[float, int, int]:
        """The sort key, lowest first: most tokens per second, then fewest datacenters, then fewest GPUs.

        Of two candidates with the same rank, a search keeps the one that it prices first.
        """
        candidate = self.candidate
        return -self.price.tokens_per_s, len(candidate.runs), candidate.gpus
