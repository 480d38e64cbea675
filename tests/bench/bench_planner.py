"""How good are the planner's searches? Greedy and better against every candidate, on 200 random small instances.

Each instance has 2 to 4 datacenters of 1 to 8 GPUs, links that differ, and 2 to 6 stages; every candidate is simulated.
Prints how often a search finds the most tokens a second that there are, by how much it falls short where it does not,
and how many simulations it took. Then what ``wanbed plan`` takes for 600 to 10,240 GPUs, as its users call it, and what
it knows in the end. `make bench` prints the figures.
"""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from statistics import median
from time import perf_counter

import pytest
import yaml

from tests.bench.bench_simulator import document as large
from tests.support.runner.planner_instances import random_task
from tests.support.runner.wanbed_command import WANBED
from wanbed.runner.planner.effort import Prices
from wanbed.runner.planner.planning import PlanningTask, ceiling, search_space
from wanbed.runner.planner.pricing import simulated_pricing
from wanbed.runner.planner.search import search_better, search_exhaustively, search_greedily
from wanbed.runner.planner.search_space import Pricing
from wanbed.runner.resolve.tcp_effects import effects_of

INSTANCES = 200
_COUNT = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stderr=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
"""
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


@pytest.mark.parametrize("gpus", [600, 2_000, 10_240])
def test_a_large_plan_is_proven_or_says_its_gap(tmp_path: Path, gpus: int) -> None:
    file = tmp_path / "large.yaml"
    file.write_text(yaml.safe_dump(large(gpus, trunk="unlimited", gpus_per_host=1)), encoding="utf-8")
    argv = [*WANBED, "plan", str(file), "--json"]
    before, begin = os.times(), perf_counter()
    # A process between them counts this command's memory alone.
    counted = [sys.executable, "-c", _COUNT, *argv]
    done = subprocess.run(counted, capture_output=True, text=True, check=True)
    seconds, after = perf_counter() - begin, os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    answer = json.loads(done.stdout)
    print(
        f"\n{gpus:6d} GPUs: {seconds:.0f} s, {cpu_s:.0f} s of CPU, {int(done.stderr.splitlines()[-1]) / 1024:.0f} MiB, "
        f"{answer['simulations']} simulations, {answer['cut_off'] or 'proven'}: {answer['gap']:.1%} more at most"
    )
    assert answer["gap"] == 0 if answer["complete"] else answer["gap"] > 0


def priced_once(task: PlanningTask) -> Pricing:
    """The searches are counted apart, but what one of them has simulated is not simulated again for the next."""
    return cache(
        simulated_pricing(
            task.topology, task.resolve, task.counted_per_sequence, effects_of(task.transport), task.iterations
        )
    )
