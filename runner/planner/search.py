"""Search by branch and bound, best bound first, so that few candidates are ever simulated: the better search.

Placements grow one datacenter at a time. Each beginning has a number of tokens a second that nothing which starts like
that can exceed; the beginning with the highest one is looked at next. A candidate is priced only when its own bound is
the highest left and above the best price so far; when none is above it, the best is proven: nothing that was left out
gives more tokens a second. The greedy answer is found first, and is what has to be beaten.
"""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from runner.planner.algorithm1 import greedy_candidates, walk
from runner.planner.candidate import Candidate, Priced, Prices, Pricing, Runs
from runner.planner.exhaustive import few_candidates
from runner.planner.search_space import SearchSpace

MOST_BEGINNINGS = 200_000
"""The most beginnings of placements that are looked at: about ten seconds, and little memory."""

Ceiling = Callable[[int, Runs, int | None], float]
"""Returns tokens a second that no candidate exceeds which has so many pipelines and begins with these runs.

The third argument is the number of pipelines in a cell, where it is known.
"""


@dataclass(frozen=True)
class Found:
    """The result of a search: at least one candidate, since no space is empty.

    ``priced`` holds every candidate that was priced. ``cut_off`` says in words why the search ended early, and is None
    where ``best`` is the best that this search promises.
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
    """Search by Algorithm 1: price its candidate for every number of cells, and take the best of those."""
    prices = Prices(pricing)
    for candidate in greedy_candidates(space):
        prices(candidate)
    return Found(prices.best, prices.best, prices.all)


def search_exhaustively(space: SearchSpace, pricing: Pricing) -> Found:
    """Price every candidate, and take the best. Raises TooManyCandidatesError before pricing any."""
    prices = Prices(pricing)
    walked = set(greedy_candidates(space))
    for candidate in few_candidates(space):
        prices(candidate)
    greedy = min((prices(candidate) for candidate in walked), key=lambda priced: priced.rank)
    return Found(prices.best, greedy, prices.all)


def search_better(
    space: SearchSpace,
    pricing: Pricing,
    ceiling: Ceiling,
    most_simulations: int = 200,
    runners_up: int = 0,
) -> Found:
    """Search by branch and bound, after the greedy answer: no worse than that, and the best of all unless cut off.

    Once that is known, up to ``runners_up`` other numbers of cells have their greedy candidates priced, for whoever
    wants to compare: those with the highest ceilings, as far as ``most_simulations`` reaches.

    Beginnings whose ceilings are equal are looked at in the order in which they were made. What can at best equal the
    best price is not priced, nor what differs from a candidate by the names of datacenters that are alike only.
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
    looked_at = 0
    while heap:
        negative, _, pipelines, runs, candidate = heappop(heap)
        if -negative <= prices.best.price.tokens_per_s:
            break
        looked_at += 1
        if looked_at > MOST_BEGINNINGS:
            cut_off = f"after looking at {MOST_BEGINNINGS} beginnings of placements"
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
    """Return the best of the walk's candidates, and why the search for it was cut off, None if it was not.

    Only those candidates are priced whose ceiling leaves them a chance.
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
    """Return the walk's runs for each number of pipelines, with their ceilings, the highest first."""
    walks = ((pipelines, walk(space, pipelines)) for pipelines in space.pipelines)
    tops = [(ceiling(pipelines, runs, None), pipelines, runs) for pipelines, runs in walks if runs is not None]
    return sorted(tops, key=lambda entry: -entry[0])


def _simulations_text(most: int) -> str:
    return f"after {most} simulation{'' if most == 1 else 's'}"
