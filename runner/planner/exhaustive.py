"""Enumerate all candidates, for the exhaustive search. Where they are few, it is the reference for other searches."""

from collections.abc import Callable, Iterator

from wanbed.runner.planner.candidate import Candidate, Runs
from wanbed.runner.planner.search_space import SearchSpace

MOST_CANDIDATES = 2000
"""The most candidates of an exhaustive search. To simulate more would take minutes."""


class TooManyCandidatesError(Exception):
    """There are too many candidates for an exhaustive search."""


def every_candidate(space: SearchSpace, check: Callable[[], None] = lambda: None) -> Iterator[Candidate]:
    """Yield each candidate once: the fewest pipelines first, then in the topology's order.

    Candidates that differ only by the names of equivalent datacenters are included. ``check`` is called for every
    placement, also those that are no candidate, and may raise.
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
            candidate = space.candidate(pipelines, runs)
            if candidate is not None:
                yield candidate


def few_candidates(
    space: SearchSpace, most: int = MOST_CANDIDATES, check: Callable[[], None] = lambda: None
) -> list[Candidate]:
    """Return ``every_candidate`` as a list. Raises TooManyCandidatesError if there are more than ``most``.

    ``check`` is as in ``every_candidate``.
    """
    found = []
    for candidate in every_candidate(space, check):
        found.append(candidate)
        if len(found) > most:
            raise TooManyCandidatesError(f"there are more than {most} candidates, the most for an exhaustive search")
    return found
