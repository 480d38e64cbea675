"""The searches for the best candidate: greedy, exhaustive, and branch and bound (the better search).

Branch and bound simulates few candidates. It extends placements by one datacenter at a time. Each partial placement has
a ceiling: tokens per second that no candidate which extends it exceeds. The one with the highest ceiling is examined
next. A candidate is priced only if its own ceiling is the highest left and above the best price so far. When no ceiling
is above the best price, the best candidate is proven: none that was left out gives more tokens per second. The greedy
answer is found first, as the price to beat.
"""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from runner.planner.algorithm1 import greedy_candidates, walk
from runner.planner.candidate import Candidate, Priced, Prices, Pricing, Runs
from runner.planner.exhaustive import few_candidates
from runner.planner.search_space import SearchSpace

MOST_PARTIAL_PLACEMENTS = 200_000
"""The most partial placements that are examined, which takes about ten seconds and little memory."""

Ceiling = Callable[[int, Runs, int | None], float]
"""Returns tokens per second that no candidate with this number of pipelines and these first runs exceeds.

The third argument is the number of pipelines in a DP-cell, None if unknown.
"""


@dataclass(frozen=True)
class Found:
    """The result of a search. It has at least one candidate, because no search space is empty.

    ``priced`` has all candidates that were priced. ``cut_off`` is the reason why the search ended early, None if the
    search is complete.
    """

    best: Priced
    greedy: Priced
    priced: tuple[Priced, ...]
    cut_off: str | None = None

    @property
    def simulations(self) -> int:
        """The number of candidates that were priced."""
        return len(self.priced)


def search_greedily(space: SearchSpace, pricing: Pricing) -> Found:
    """Search by Algorithm 1: price its candidate for every number of DP-cells, and return the best."""
    prices = Prices(pricing)
    for candidate in greedy_candidates(space):
        prices(candidate)
    return Found(prices.best, prices.best, prices.all)


def search_exhaustively(space: SearchSpace, pricing: Pricing) -> Found:
    """Price every candidate, and return the best. Raises TooManyCandidatesError before pricing any."""
    prices = Prices(pricing)
    by_greedy_walk = set(greedy_candidates(space))
    for candidate in few_candidates(space):
        prices(candidate)
    greedy = min((prices(candidate) for candidate in by_greedy_walk), key=lambda priced: priced.rank)
    return Found(prices.best, greedy, prices.all)


def search_better(
    space: SearchSpace,
    pricing: Pricing,
    ceiling: Ceiling,
    most_simulations: int = 200,
    runners_up: int = 0,
) -> Found:
    """Search by branch and bound after finding the greedy answer. At most ``most_simulations`` candidates are priced.

    The result is never worse than the greedy answer, and is the best candidate unless the search is cut off. After the
    search, also price the greedy candidates of up to ``runners_up`` other numbers of DP-cells for comparison: those
    with the highest ceilings, as far as ``most_simulations`` allows.

    Partial placements with equal ceilings are examined in the order of their creation. Candidates that can at best
    equal the best price are not priced, nor those that differ from another one only by the names of equivalent
    datacenters.
    """
    prices = Prices(pricing)
    greedy, cut_off = _greedy_answer(space, prices, ceiling, most_simulations)
    order = count()
    heap: list[tuple[float, int, int, Runs, Candidate | None]] = []

    def push(pipelines: int, runs: Runs, candidate: Candidate | None = None) -> None:
        top = ceiling(pipelines, runs, candidate.pipelines_per_cell if candidate else None)
        if top > prices.best.price.tokens_per_s:
            heappush(heap, (-top, next(order), pipelines, runs, candidate))

    if cut_off is None:
        for pipelines in reversed(space.pipelines):
            push(pipelines, ())
    examined = 0
    while heap:
        negative, _, pipelines, runs, candidate = heappop(heap)
        if -negative <= prices.best.price.tokens_per_s:
            break
        examined += 1
        if examined > MOST_PARTIAL_PLACEMENTS:
            cut_off = f"after examining {MOST_PARTIAL_PLACEMENTS} partial placements"
            break
        if candidate is not None:
            if len(prices) >= most_simulations and not prices.knows(candidate):
                cut_off = _simulations_text(most_simulations)
                break
            prices(candidate)
        elif sum(stages for _, stages in runs) == space.stages:
            whole = space.candidate(pipelines, runs)
            if whole is not None:
                push(pipelines, runs, whole)
        else:
            for further in space.next_runs(pipelines, runs, all_alike=False):
                push(pipelines, further)
    if cut_off is None:
        _price_runners_up(space, prices, ceiling, runners_up, most_simulations)
    return Found(prices.best, greedy, prices.all, cut_off)


def _greedy_answer(
    space: SearchSpace, prices: Prices, ceiling: Ceiling, most_simulations: int
) -> tuple[Priced, str | None]:
    """Return the best candidate of the greedy walk, and why this search was cut off (None if it was not).

    Only candidates whose ceiling is above the best price so far are priced.
    """
    for top, pipelines, runs in _walks(space, ceiling):
        if len(prices) and top <= prices.best.price.tokens_per_s:
            break
        candidate = space.candidate(pipelines, runs)
        if candidate is None:
            continue
        if len(prices) >= most_simulations:
            return prices.best, _simulations_text(most_simulations)
        prices(candidate)
    return prices.best, None


def _price_runners_up(
    space: SearchSpace, prices: Prices, ceiling: Ceiling, runners_up: int, most_simulations: int
) -> None:
    seen = {priced.candidate.dp_cells for priced in prices.all}
    for _, pipelines, runs in _walks(space, ceiling):
        if len(seen) > runners_up or len(prices) >= most_simulations:
            return
        candidate = space.candidate(pipelines, runs)
        if candidate is not None and candidate.dp_cells not in seen:
            seen.add(prices(candidate).candidate.dp_cells)


def _walks(space: SearchSpace, ceiling: Ceiling) -> list[tuple[float, int, Runs]]:
    """Return (ceiling, pipelines, runs) of the greedy walk for each number of pipelines, the highest ceiling first."""
    walks = ((pipelines, walk(space, pipelines)) for pipelines in space.pipelines)
    tops = [(ceiling(pipelines, runs, None), pipelines, runs) for pipelines, runs in walks if runs is not None]
    return sorted(tops, key=lambda entry: -entry[0])


def _simulations_text(most: int) -> str:
    return f"after {most} simulation{'' if most == 1 else 's'}"
