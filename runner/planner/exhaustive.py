"""Try every candidate there is: the oracle that other searches are compared with, where there are few candidates."""

from collections.abc import Iterator

from runner.planner.candidate import Candidate, Runs
from runner.planner.search_space import SearchSpace

MOST_CANDIDATES = 2000
"""More candidates than this are not priced one by one: simulated, they would take minutes."""


class TooManyCandidatesError(Exception):
    """There are more candidates than an exhaustive search takes on."""


def every_candidate(space: SearchSpace) -> Iterator[Candidate]:
    """Yield each candidate once: the fewest pipelines first, then the topology's order.

    Those that differ by names only are included.
    """

    def whole(pipelines: int, runs: Runs) -> Iterator[Runs]:
        if sum(stages for _, stages in runs) == space.stages:
            yield runs
            return
        for further in space.next_runs(pipelines, runs, all_alike=True):
            yield from whole(pipelines, further)

    for pipelines in space.pipelines:
        for runs in whole(pipelines, ()):
            candidate = space.candidate(pipelines, runs)
            if candidate is not None:
                yield candidate


def few_candidates(space: SearchSpace, most: int = MOST_CANDIDATES) -> list[Candidate]:
    """Return ``every_candidate`` as a list. Raises TooManyCandidatesError for more than ``most``."""
    found = []
    for candidate in every_candidate(space):
        found.append(candidate)
        if len(found) > most:
            raise TooManyCandidatesError(f"there are more than the {most} candidates that are tried one by one")
    return found
