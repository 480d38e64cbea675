"""Describe candidates, answers to where a model could be trained, and the order in which they are preferred."""

from collections.abc import Callable
from dataclasses import dataclass

Runs = tuple[tuple[str, int], ...]
"""Datacenters in the order of the stages they hold, each once, with how many consecutive stages."""


@dataclass(frozen=True)
class Candidate:
    """A candidate: ``dp_cells`` cells of ``pipelines_per_cell`` pipelines, all cut and placed alike.

    Every replica of a stage lies in the datacenter that ``runs`` gives it. Raises ValueError for a count below 1, and
    for a datacenter that comes twice.
    """

    dp_cells: int
    pipelines_per_cell: int
    runs: Runs

    def __post_init__(self) -> None:
        if min(self.dp_cells, self.pipelines_per_cell, *(stages for _, stages in self.runs)) < 1:
            raise ValueError(f"{self}: a count is below 1")
        if len(set(self.datacenters)) < len(self.runs):
            raise ValueError(f"{self}: a datacenter holds consecutive stages, and comes once")

    @property
    def pipelines(self) -> int:
        """The number of pipelines in all cells together."""
        return self.dp_cells * self.pipelines_per_cell

    @property
    def stages(self) -> int:
        """The number of stages in each pipeline."""
        return sum(stages for _, stages in self.runs)

    @property
    def datacenters(self) -> tuple[str, ...]:
        """The datacenters that train, that of stage 0 first."""
        return tuple(name for name, _ in self.runs)

    @property
    def placement(self) -> tuple[str, ...]:
        """The datacenter of each stage."""
        return tuple(name for name, stages in self.runs for _ in range(stages))


@dataclass(frozen=True)
class Price:
    """The time and output of one iteration of a candidate; ``wan_bytes`` are those of one iteration, with headers."""

    iteration_time_s: float
    tokens_per_s: float
    gpu_utilization: float
    wan_bytes: int


Pricing = Callable[[Candidate], Price]
"""Returns the price of a candidate; the same one always has the same price."""


@dataclass(frozen=True)
class Priced:
    """A candidate and its price."""

    candidate: Candidate
    price: Price

    @property
    def rank(self) -> tuple[float, int, int]:
        """The smaller the better: most tokens a second, then fewest datacenters, then fewest GPUs.

        Of two with the same rank, the one that a search comes to first is kept.
        """
        candidate = self.candidate
        return -self.price.tokens_per_s, len(candidate.runs), candidate.pipelines * candidate.stages


class Prices:
    """The prices asked for so far, in that order, each candidate once; its ``len`` is how many were worked out."""

    def __init__(self, pricing: Pricing) -> None:
        self._pricing = pricing
        self._known: dict[Candidate, Priced] = {}

    def __call__(self, candidate: Candidate) -> Priced:
        """Return the candidate with its price."""
        if candidate not in self._known:
            self._known[candidate] = Priced(candidate, self._pricing(candidate))
        return self._known[candidate]

    def __len__(self) -> int:
        return len(self._known)

    def knows(self, candidate: Candidate) -> bool:
        """Return whether the candidate's price has been worked out."""
        return candidate in self._known

    @property
    def all(self) -> tuple[Priced, ...]:
        """Every candidate priced so far."""
        return tuple(self._known.values())

    @property
    def best(self) -> Priced:
        """The best of the candidates priced so far. Raises ValueError before the first."""
        return min(self._known.values(), key=lambda priced: priced.rank)
