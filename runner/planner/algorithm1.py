"""The greedy walk of Atlas (Palak et al., arXiv 2411.14458, Algorithm 1): it fills the largest datacenters first."""

from collections.abc import Callable, Iterator

from wanbed.runner.planner.candidate import Candidate, Runs
from wanbed.runner.planner.search_space import SearchSpace


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


def greedy_walks(space: SearchSpace, check: Callable[[], None] = lambda: None) -> Iterator[tuple[int, Runs]]:
    """Yield each number of pipelines that fits, and where the walk places their stages; the fewest pipelines first.

    ``check`` is called for every number of pipelines, and may raise.
    """
    for pipelines in space.pipelines:
        check()
        runs = walk(space, pipelines)
        if runs is not None:
            yield pipelines, runs


def greedy_candidates(space: SearchSpace, check: Callable[[], None] = lambda: None) -> list[Candidate]:
    """Return the walk's candidate for each number of pipelines that fits. ``check`` is as in ``greedy_walks``."""
    found = (space.candidate(pipelines, runs) for pipelines, runs in greedy_walks(space, check))
    return [candidate for candidate in found if candidate is not None]
