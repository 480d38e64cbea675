"""How good are the planner's searches? Greedy and better against every candidate, on 200 random small instances.

Each instance has 2 to 4 datacenters of 1 to 8 GPUs, links that differ, and 2 to 6 stages; every candidate is simulated.
Prints how often a search finds the most tokens a second that there are, by how much it falls short where it does not,
and how many simulations it took. `make bench` prints the figures.
"""

from functools import cache
from statistics import median
from time import perf_counter

from runner.planner.candidate import Pricing
from runner.planner.effort import Prices
from runner.planner.planning import PlanningTask, ceiling, search_space
from runner.planner.pricing import simulated_pricing
from runner.planner.search import search_better, search_exhaustively, search_greedily
from runner.tcp.effects import effects_of
from tests.support.runner.planner_instances import random_task

INSTANCES = 200
EXACT = 1e-9
"""Relative: two candidates that differ by the names of alike datacenters only may differ by less than this."""


def test_the_better_search_is_exact_where_the_greedy_walk_is_not() -> None:
    shortfalls: dict[str, list[float]] = {"greedy": [], "better": [], "exhaustive": []}
    simulations: dict[str, list[int]] = {name: [] for name in shortfalls}
    seconds = 0.0
    for seed in range(INSTANCES):
        task = random_task(seed)
        space = search_space(task)
        pricing = priced_once(task)
        begin = perf_counter()
        found = {
            "greedy": search_greedily(space, Prices(pricing), ceiling(task)),
            "better": search_better(space, Prices(pricing), ceiling(task)),
            "exhaustive": search_exhaustively(space, Prices(pricing)),
        }
        seconds += perf_counter() - begin
        most = found["exhaustive"].best.price.tokens_per_s
        for name, outcome in found.items():
            shortfalls[name].append(1 - outcome.best.price.tokens_per_s / most)
            simulations[name].append(outcome.simulations)
    print(f"\n{INSTANCES} instances, {sum(simulations['exhaustive'])} simulations in {seconds:.1f} s")
    print(
        f"{'search':<12}{'exact':>8}{'short by: median':>18}{'most':>8}{'simulations: median':>21}{'most':>6}{'all':>8}"
    )
    for name, shares in shortfalls.items():
        short = [share for share in shares if share > EXACT]
        print(
            f"{name:<12}{INSTANCES - len(short):>4}/{INSTANCES}{median(short or [0.0]):>18.1%}{max(shares):>8.1%}"
            f"{median(simulations[name]):>21g}{max(simulations[name]):>6}{sum(simulations[name]):>8}"
        )
    assert max(shortfalls["better"]) <= EXACT
    assert all(one <= other for one, other in zip(simulations["better"], simulations["exhaustive"], strict=True))


def priced_once(task: PlanningTask) -> Pricing:
    """The searches are counted apart, but what one of them has simulated is not simulated again for the next."""
    return cache(
        simulated_pricing(
            task.topology, task.resolve, task.counted_per_sequence, effects_of(task.transport), task.iterations
        )
    )
