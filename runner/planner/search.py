"""Search for the best candidate: greedily, exhaustively, or by branch and bound (the better search).

The greedy walk is Algorithm 1 of Atlas (Palak et al., arXiv 2411.14458): it fills the largest datacenters first.

The exhaustive search prices every candidate. Where they are few, it is the reference for the other searches.

Branch and bound simulates few candidates. It extends placements by one datacenter at a time. Each partial placement has
a ceiling: a worth, like tokens per second, that no candidate which extends it exceeds. The one with the highest ceiling
is examined next. A candidate is priced only if its own ceiling is the highest left and above the best worth so far.
When no ceiling is above the best worth, the best candidate is proven: none that was left out is worth more. The greedy
answer is found first, as the worth to beat.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import heappop, heappush, nsmallest
from itertools import chain, count, islice, takewhile
from math import inf

from wanbed.ground.errors import WanbedError
from wanbed.runner.planner.effort import Effort, LimitReachedError, Prices
from wanbed.runner.planner.search_space import Candidate, Priced, Runs, SearchSpace


def walk(space: SearchSpace, pipelines: int) -> Runs | None:
    """Return where the walk places the stages of ``pipelines`` = D x C pipelines, None if they do not fit.

    The walk takes the datacenters in descending order of free GPUs, equal ones in the topology's order. Each gets
    ``min(stages left, gpus // (D x C))`` consecutive stages. If stages remain, D does not fit. The walk ignores links:
    only the price accounts for them.
    """
    room = space.room(pipelines)
    left, runs = space.stages, []
    for name in sorted(room, key=lambda name: -space.free_gpus[name]):
        stages = min(left, room[name])
        if stages > 0:
            runs.append((name, stages))
            left -= stages
    return None if left else tuple(runs)


def _greedy_walks(space: SearchSpace, check: Callable[[], None] = lambda: None) -> Iterator[tuple[int, Runs]]:
    """Yield each number of pipelines that fits, and where the walk places their stages; the fewest pipelines first.

    ``check`` is called for every number of pipelines, and may raise.
    """
    for pipelines in space.pipelines:
        check()
        runs = walk(space, pipelines)
        if runs is not None:
            yield pipelines, runs


def greedy_candidates(space: SearchSpace, check: Callable[[], None] = lambda: None) -> list[Candidate]:
    """Return the walk's candidate for each number of pipelines that fits. ``check`` is as in ``_greedy_walks``."""
    found = (space.candidate(pipelines, runs) for pipelines, runs in _greedy_walks(space, check))
    return [candidate for candidate in found if candidate is not None]


_MOST_CANDIDATES = 2000
"""The most candidates of an exhaustive search. To simulate more would take minutes."""


LARGE_CELLS_LEFT_OUT = "before numbers of pipelines that make a single large DP-cell: give pipelines_per_cell for them"
"""Why a search is incomplete that has left out what ``SearchSpace.cell_size`` skips."""


class TooManyCandidatesError(Exception):
    """There are too many candidates for an exhaustive search."""


def every_candidate(space: SearchSpace, check: Callable[[], None] = lambda: None) -> Iterator[Candidate | None]:
    """Yield each candidate once: the fewest pipelines first, then in the topology's order.

    None stands for one that is skipped. Candidates that differ only by the names of equivalent datacenters are
    included. ``check`` is called for each, and may raise.
    """

    def complete(pipelines: int, runs: Runs) -> Iterator[Runs]:
        if sum(stages for _, stages in runs) == space.stages:
            yield runs
            return
        for further in space.next_runs(pipelines, runs, all_alike=True):
            yield from complete(pipelines, further)

    for pipelines in space.pipelines:
        for runs in complete(pipelines, ()):
            check()
            yield space.candidate(pipelines, runs)


def few_candidates(
    space: SearchSpace, most: int = _MOST_CANDIDATES, check: Callable[[], None] = lambda: None
) -> list[Candidate | None]:
    """Return ``every_candidate`` as a list, None once at most. Raises TooManyCandidatesError beyond ``most``.

    ``check`` is as in ``every_candidate``.
    """
    found: dict[Candidate | None, None] = {}
    for candidate in every_candidate(space, check):
        found[candidate] = None
        if len(found) > most:
            raise TooManyCandidatesError(f"there are more than {most} candidates, the most for an exhaustive search")
    return list(found)


MOST_PARTIAL_PLACEMENTS = 200_000
"""The most partial placements that are examined, which takes about ten seconds and little memory."""

_LOOKED_AHEAD = 64
"""Of so many placements with the highest ceilings, those that are whole are likely to be priced next."""

Ceiling = Callable[[int, Runs, int | None], float]
"""Returns the worth that no candidate with this number of pipelines and these first runs exceeds.

The third argument is the number of pipelines in a DP-cell, None if unknown.
"""


@dataclass(frozen=True)
class Found:
    """The result of a search.

    ``greedy`` is the best candidate of the greedy walk. ``priced`` has all candidates that were priced, at least one.
    ``at_most`` is the worth that no candidate exceeds, as far as the search knows: that of ``best`` if that is proven,
    infinite if no ceilings were given. ``cut_off`` is the reason why the search ended early, None if
    the search is complete. ``ended_by`` is the exception that a signal has raised in the search, like
    KeyboardInterrupt, None if there was none.
    """

    best: Priced
    greedy: Priced
    priced: tuple[Priced, ...]
    at_most: float = inf
    cut_off: str | None = None
    ended_by: BaseException | None = None

    @property
    def simulations(self) -> int:
        """The number of candidates that were priced."""
        return len(self.priced)


class NothingPricedError(WanbedError):
    """A search has ended before it priced a candidate. The text is the reason, ``ended_by`` as in ``Found``."""

    def __init__(self, cut_off: str, ended_by: BaseException | None) -> None:
        super().__init__(cut_off)
        self.ended_by = ended_by


def search_greedily(space: SearchSpace, prices: Prices, ceiling: Ceiling, runners_up: int = 0) -> Found:
    """Search by Algorithm 1: return the best of its candidates, one for every number of DP-cells.

    Candidates whose ceiling is not above the best worth so far are not priced, except ``runners_up`` as in
    ``search_better``.
    """
    walks: list[_Walk] = []

    def search() -> None:
        walks.extend(_sorted_walks(space, ceiling, prices.effort))
        prices.effort.candidates = len(walks)
        _price_walks(space, prices, walks)

    found = _found(space, prices, search, lambda: _price_runners_up(space, prices, walks, runners_up))
    return replace(found, at_most=max(found.best.worth, highest_ceiling(space, ceiling)))


def search_exhaustively(space: SearchSpace, prices: Prices, ceiling: Ceiling | None = None) -> Found:
    """Price every candidate, and return the best. Raises TooManyCandidatesError before pricing any."""

    def search() -> None:
        every = few_candidates(space, check=prices.effort.check_time)
        candidates = [candidate for candidate in every if candidate is not None]
        prices.effort.candidates = len(candidates)
        # The candidates of the greedy walk come first, so that a search that is cut off has their answer.
        greedy_first = sorted(candidates, key=lambda candidate: not _is_greedy(space, candidate))
        prices.expect(iter(greedy_first))
        for candidate in greedy_first:
            prices(candidate)
        if len(candidates) < len(every):
            raise LimitReachedError(LARGE_CELLS_LEFT_OUT)

    found = _found(space, prices, search)
    best = found.best.worth
    if found.cut_off is None:
        return replace(found, at_most=best)
    return found if ceiling is None else replace(found, at_most=max(best, highest_ceiling(space, ceiling)))


def search_better(
    space: SearchSpace,
    prices: Prices,
    ceiling: Ceiling,
    runners_up: int = 0,
    *,
    limit_simulations: Callable[[], None] = lambda: None,
) -> Found:
    """Search by branch and bound after finding the greedy answer.

    The result is never worse than the greedy answer, and is the best candidate unless the search is cut off. After the
    search, also price the greedy candidates of up to ``runners_up`` other numbers of DP-cells for comparison: those
    with the highest ceilings, as far as the limits allow.

    Partial placements with equal ceilings are examined in the order of their creation. Candidates that can at best
    equal the best worth are not priced, nor those that differ from another one only by the names of equivalent
    datacenters. ``limit_simulations`` is called first, as a part of the search.
    """
    walks: list[_Walk] = []
    left = _Left()

    def search() -> None:
        limit_simulations()
        walks.extend(_sorted_walks(space, ceiling, prices.effort))
        _price_walks(space, prices, walks)
        _branch_and_bound(space, prices, ceiling, left)

    found = _found(space, prices, search, lambda: _price_runners_up(space, prices, walks, runners_up))
    best = found.best.worth
    if found.cut_off is None:
        return replace(found, at_most=best)
    unexamined = highest_ceiling(space, ceiling) if left.ceiling is None else left.ceiling
    if found.ended_by is None:
        unexamined = min(unexamined, _highest_without_price(space, prices, ceiling))
    if unexamined <= best:
        return replace(found, at_most=best, cut_off=None)
    return replace(found, at_most=unexamined)


@dataclass
class _Left:
    """The highest ceiling of what branch and bound has not examined, None before it has begun."""

    ceiling: float | None = None


def promising_walks(
    space: SearchSpace, ceiling: Ceiling, most: int, effort: Effort | None = None
) -> list[tuple[Candidate, float]]:
    """Return ``most`` candidates of the greedy walk with the highest ceilings, the highest first, each with its own.

    Only those are compared whose ceilings are computed within the limit of ``effort``.
    """
    walks: list[_Walk] = []
    with suppress(LimitReachedError):
        walks.extend(_walks(space, ceiling, effort or Effort()))
    candidates = ((space.candidate(pipelines, runs), top) for top, pipelines, runs in sorted(walks, key=_descending))
    return list(islice(((candidate, top) for candidate, top in candidates if candidate is not None), most))


def _found(
    space: SearchSpace, prices: Prices, search: Callable[[], None], compare: Callable[[], None] = lambda: None
) -> Found:
    """Run ``search`` and ``compare``, and return what they found until their end or a limit or a signal.

    Raises NothingPricedError.
    """
    complete, reason = False, ""
    ended_by: BaseException | None = None
    try:
        search()
        complete = True
        compare()
    except LimitReachedError as limit:
        reason = str(limit)
    except BaseException as end:
        # What a signal raises is no Exception. Errors are not for the search to handle.
        if isinstance(end, Exception):
            raise
        ended_by, reason = end, f"when interrupted, {prices.effort.done_text}"
    cut_off = None if complete else reason
    if cut_off is not None and not len(prices):
        raise NothingPricedError(cut_off, ended_by)
    greedy = [priced for priced in prices.all if _is_greedy(space, priced.candidate)]
    best_of_greedy = min(greedy, key=lambda priced: priced.rank)
    return Found(prices.best, best_of_greedy, prices.all, cut_off=cut_off, ended_by=ended_by)


def highest_ceiling(space: SearchSpace, ceiling: Ceiling) -> float:
    """Return the worth that no candidate exceeds."""
    return max(ceiling(pipelines, (), None) for pipelines in space.pipelines)


_Partial = tuple[float, int, int, Runs, Candidate | None]
"""The negative ceiling of a partial placement, its number, its pipelines and runs; the candidate if it is whole."""

_EXAMINED_AT_END = 5_000
"""The most partial placements that are examined for the gap of a search without an end: a quarter of a second."""


class _Frontier:
    """The partial placements and whole candidates that branch and bound has yet to examine, by their ceilings.

    ``promises`` tells whether a ceiling is worth an examination. ``check`` is called before each ceiling is computed,
    and may raise.
    """

    def __init__(
        self, space: SearchSpace, ceiling: Ceiling, promises: Callable[[float], bool], check: Callable[[], None]
    ) -> None:
        self._space, self._ceiling, self._promises, self._check = space, ceiling, promises, check
        self._order = count()
        self._heap: list[_Partial] = []
        self.left_out = -inf
        """The highest ceiling of a whole placement that was skipped."""
        for pipelines in reversed(space.pipelines):
            self._push(pipelines, ())

    @property
    def highest(self) -> float | None:
        """The highest ceiling, None if nothing is left."""
        return -self._heap[0][0] if self._heap else None

    def taken(self) -> Candidate | None:
        """Take what has the highest ceiling: return a whole candidate, and replace anything else by what extends it."""
        negative, _, pipelines, runs, candidate = heappop(self._heap)
        if candidate is not None:
            return candidate
        if sum(stages for _, stages in runs) == self._space.stages:
            whole = self._space.candidate(pipelines, runs)
            if whole is not None:
                self._push(pipelines, runs, whole)
            else:
                self.left_out = max(self.left_out, -negative)
        else:
            for further in self._space.next_runs(pipelines, runs, all_alike=False):
                self._push(pipelines, further)
        return None

    def whole_ones(self) -> Iterator[Candidate]:
        """Yield whole candidates with the highest ceilings of all."""
        for negative, _, _, _, candidate in nsmallest(_LOOKED_AHEAD, self._heap):
            if candidate is not None and self._promises(-negative):
                yield candidate

    def _push(self, pipelines: int, runs: Runs, candidate: Candidate | None = None) -> None:
        self._check()
        top = self._ceiling(pipelines, runs, candidate.pipelines_per_cell if candidate else None)
        if self._promises(top):
            heappush(self._heap, (-top, next(self._order), pipelines, runs, candidate))


def _branch_and_bound(space: SearchSpace, prices: Prices, ceiling: Ceiling, left: _Left) -> None:
    effort = prices.effort
    frontier = _Frontier(space, ceiling, prices.may_be_best, effort.check_time)
    while (highest := frontier.highest) is not None:
        left.ceiling = max(highest, frontier.left_out)
        if not prices.may_be_best(highest):
            break
        effort.check()
        effort.examined += 1
        if effort.examined > MOST_PARTIAL_PLACEMENTS:
            raise LimitReachedError(f"after examining {MOST_PARTIAL_PLACEMENTS} partial placements")
        candidate = frontier.taken()
        if candidate is not None:
            prices.expect(chain([candidate], frontier.whole_ones()))
            prices(candidate)
    if prices.may_be_best(frontier.left_out):
        left.ceiling = frontier.left_out
        raise LimitReachedError(LARGE_CELLS_LEFT_OUT)


def _highest_without_price(space: SearchSpace, prices: Prices, ceiling: Ceiling) -> float:
    """Return the worth that no candidate without a price exceeds, after a short look at their placements."""
    frontier = _Frontier(space, ceiling, prices.may_be_best, lambda: None)
    for _ in range(_EXAMINED_AT_END):
        highest = frontier.highest
        if highest is None:
            break
        candidate = frontier.taken()
        if (candidate is not None and candidate not in prices) or frontier.left_out > -inf:
            return highest
    return -inf if frontier.highest is None else frontier.highest


_Walk = tuple[float, int, Runs]
"""The ceiling, the number of pipelines, and the runs of a greedy walk."""


def _price_walks(space: SearchSpace, prices: Prices, walks: Sequence[_Walk]) -> None:
    """Price the candidates of the greedy walk whose ceiling is above the best worth so far."""
    promising = takewhile(lambda walk: prices.may_be_best(walk[0]), walks)
    candidates = (space.candidate(pipelines, runs) for _, pipelines, runs in promising)
    prices.expect(candidate for candidate in candidates if candidate is not None)
    for top, pipelines, runs in walks:
        if not prices.may_be_best(top):
            return
        candidate = space.candidate(pipelines, runs)
        if candidate is not None:
            prices(candidate)


def _price_runners_up(space: SearchSpace, prices: Prices, walks: Sequence[_Walk], runners_up: int) -> None:
    seen = {priced.candidate.dp_cells for priced in prices.all}
    others = (space.candidate(pipelines, runs) for _, pipelines, runs in walks)
    unlike = (candidate for candidate in others if candidate is not None and candidate.dp_cells not in seen)
    prices.expect(islice(unlike, max(runners_up + 1 - len(seen), 0)))
    for _, pipelines, runs in walks:
        if len(seen) > runners_up:
            return
        candidate = space.candidate(pipelines, runs)
        if candidate is not None and candidate.dp_cells not in seen:
            seen.add(prices(candidate).candidate.dp_cells)


def _walks(space: SearchSpace, ceiling: Ceiling, effort: Effort) -> Iterator[_Walk]:
    """Yield the greedy walk for each number of pipelines. Raises LimitReachedError."""
    for pipelines, runs in _greedy_walks(space, effort.check_time):
        yield ceiling(pipelines, runs, None), pipelines, runs


def _sorted_walks(space: SearchSpace, ceiling: Ceiling, effort: Effort) -> list[_Walk]:
    """Return ``_walks``, the highest ceiling first."""
    return sorted(_walks(space, ceiling, effort), key=_descending)


def _descending(walk: _Walk) -> float:
    return -walk[0]


def _is_greedy(space: SearchSpace, candidate: Candidate) -> bool:
    return walk(space, candidate.pipelines) == candidate.runs
