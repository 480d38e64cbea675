from collections.abc import Callable
from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.planner.candidate import Candidate, Price, Pricing, Runs
from runner.planner.planning import ceiling, search_space
from runner.planner.search import search_better, search_exhaustively, search_greedily
from tests.support.runner.planner_instances import document, pricing_of, random_task, task_of

GPIPE = [{"name": "v", "schedule": "gpipe"}]


def at_random(seed: int) -> Pricing:
    def price(candidate: Candidate) -> Price:
        return Price(1.0, Random(f"{seed} {candidate}").random(), 0.5, 0)

    return price


def nothing_known(_: int, __: Runs, ___: int | None) -> float:
    return inf


def counted(pricing: Pricing, asked: list[Candidate]) -> Callable[[Candidate], Price]:
    def price(candidate: Candidate) -> Price:
        asked.append(candidate)
        return pricing(candidate)

    return price


@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_better_search_finds_the_exhaustive_answer_and_prices_no_more(seed: int) -> None:
    """On 200 instances of up to 8 GPUs: ``tests/bench/bench_planner.py``."""
    task = random_task(seed, most_gpus=5)
    space, pricing = search_space(task), pricing_of(task)
    greedy = search_greedily(space, pricing)
    better = search_better(space, pricing, ceiling(task))
    oracle = search_exhaustively(space, pricing)
    assert oracle.best.price.tokens_per_s == pytest.approx(better.best.price.tokens_per_s, rel=1e-12)
    assert better.best.price.tokens_per_s >= greedy.best.price.tokens_per_s
    assert greedy.best.price == oracle.greedy.price == better.greedy.price
    assert better.cut_off is None
    assert better.simulations <= oracle.simulations


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_without_a_ceiling_every_candidate_is_priced(seed: int) -> None:
    task = random_task(seed)
    space = search_space(task)
    better = search_better(space, at_random(seed), nothing_known, most_simulations=10_000)
    oracle = search_exhaustively(space, at_random(seed))
    if not any(space.alike.values()):
        assert better.best == oracle.best
        assert better.simulations == oracle.simulations
    assert oracle.best.price.tokens_per_s >= better.best.price.tokens_per_s >= better.greedy.price.tokens_per_s


def test_datacenters_that_are_alike_are_not_tried_in_each_others_place() -> None:
    task = task_of(document({"a": 1, "b": 1, "c": 1, "d": 1}, 3, variants=GPIPE))
    asked: list[Candidate] = []
    search_better(search_space(task), counted(at_random(0), asked), nothing_known)
    assert [candidate.datacenters for candidate in asked] == [("a", "b", "c")]


def test_a_search_that_is_cut_off_reports_it_and_returns_the_greedy_answer_at_least() -> None:
    task = task_of(document({"a": 3, "b": 5, "c": 4}, 4, variants=GPIPE))
    found = search_better(search_space(task), at_random(1), nothing_known, most_simulations=7)
    assert found.simulations == 7
    assert found.cut_off == "after 7 simulations"
    assert found.best.price.tokens_per_s >= found.greedy.price.tokens_per_s
    one = search_better(search_space(task), at_random(1), nothing_known, most_simulations=1)
    assert (one.simulations, one.cut_off) == (1, "after 1 simulation")


def test_a_search_gives_the_same_twice() -> None:
    task = random_task(29)
    found = [search_better(search_space(task), pricing_of(task), ceiling(task)) for _ in range(2)]
    assert found[0] == found[1]


def test_runners_up_are_the_greedy_candidates_of_other_numbers_of_cells() -> None:
    space = search_space(task_of(document({"a": 12}, 2, variants=GPIPE)))
    found = search_better(space, by_pipelines, lambda pipelines, _, __: float(pipelines), runners_up=3)
    assert [priced.candidate.dp_cells for priced in found.priced] == [6, 5, 4, 3]
    cut = search_better(space, at_random(0), nothing_known, most_simulations=1, runners_up=3)
    assert cut.simulations == 1


def by_pipelines(candidate: Candidate) -> Price:
    return Price(1.0, float(candidate.pipelines), 0.5, 0)
