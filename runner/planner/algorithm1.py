"""The greedy walk of Atlas (Palak et al., arXiv 2411.14458, Algorithm 1): the largest datacenters are filled first."""

from runner.planner.candidate import Candidate, Runs
from runner.planner.search_space import SearchSpace


def walk(space: SearchSpace, pipelines: int) -> Runs | None:
    """Return where the walk lays the stages of so many pipelines, D x C of them; None where they do not fit.

    Datacenters by free GPUs, descending, equal ones in the topology's order; each gets ``min(stages left, gpus // (D x
    C))`` consecutive stages; if stages remain, D does not fit. The walk looks at no link: that is left to the price.
    """
    room = space.room(pipelines)
    left, runs = space.stages, []
    for name in sorted(room, key=lambda name: -space.free_gpus[name]):
        stages = min(left, room[name])
        if stages > 0:
            runs.append((name, stages))
            left -= stages
    return None if left else tuple(runs)


def greedy_candidates(space: SearchSpace) -> list[Candidate]:
    """Return the walk's candidate for each number of DP-cells that fits, the fewest pipelines first."""
    walks = ((pipelines, walk(space, pipelines)) for pipelines in space.pipelines)
    found = (space.candidate(pipelines, runs) for pipelines, runs in walks if runs is not None)
    return [candidate for candidate in found if candidate is not None]
