from collections.abc import Callable
from dataclasses import replace
from math import comb, inf, perm
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.runner.planner_instances import document, pricing_of, random_task, task_of
from wanbed.runner.planner.effort import Effort, Limits, Prices
from wanbed.runner.planner.planning import ceiling, search_space
from wanbed.runner.planner.search import (
    LARGE_CELLS_LEFT_OUT,
    Found,
    NothingPricedError,
    TooManyCandidatesError,
    every_candidate,
    few_candidates,
    greedy_candidates,
    promising_walks,
    search_better,
    search_exhaustively,
    search_greedily,
)
from wanbed.runner.planner.search_space import Candidate, Price, Pricing, Runs, SearchSpace

NO_SHARING = [{"name": "v", "schedule": "varuna"}]


def walked(gpus: dict[str, int], stages: int, **changes: object) -> list[Candidate]:
    return greedy_candidates(search_space(task_of(document(gpus, stages, **changes))))


def test_the_largest_datacenter_is_filled_first_for_each_number_of_cells() -> None:
    assert walked({"east": 2, "west": 8, "north": 4}, 3, variants=NO_SHARING) == [
        Candidate(1, 1, (("west", 3),)),
        Candidate(2, 1, (("west", 3),)),
        Candidate(3, 1, (("west", 2), ("north", 1))),
        Candidate(4, 1, (("west", 2), ("north", 1))),
    ]


def test_a_number_of_cells_for_which_stages_remain_is_left_out() -> None:
    # Three cells find 2 stages in west, 1 in north, none in east: one of 4 remains.
    assert walked({"east": 2, "west": 8, "north": 4}, 4, variants=NO_SHARING) == [
        Candidate(1, 1, (("west", 4),)),
        Candidate(2, 1, (("west", 4),)),
    ]


def test_equal_datacenters_are_filled_in_the_order_of_the_topology() -> None:
    assert walked({"b": 2, "a": 2, "c": 2}, 6, variants=NO_SHARING) == [Candidate(1, 1, (("b", 2), ("a", 2), ("c", 2)))]


def test_a_cell_takes_a_gpu_of_each_of_its_pipelines_for_a_stage() -> None:
    variants = [{"name": "v", "schedule": "atlas", "transport": {"sharing": "temporal", "pipelines_per_cell": 3}}]
    assert walked({"east": 7, "west": 13}, 3, variants=variants) == [
        Candidate(1, 3, (("west", 3),)),
        Candidate(2, 3, (("west", 2), ("east", 1))),
    ]


def test_there_is_every_order_of_datacenters_and_every_cut_between_them() -> None:
    space = search_space(task_of(document({"a": 5, "b": 5, "c": 5, "d": 5}, 5), pipelines=1))
    expected = sum(perm(4, used) * comb(4, used - 1) for used in range(1, 5))
    assert len(list(every_candidate(space))) == expected


def test_too_many_are_refused_before_any_is_priced() -> None:
    space = search_space(task_of(document({"a": 5, "b": 5, "c": 5, "d": 5}, 5), pipelines=1))
    assert len(few_candidates(space, most=292)) == 292
    with pytest.raises(TooManyCandidatesError, match="more than 291 candidates"):
        few_candidates(space, most=291)


GPIPE = [{"name": "v", "schedule": "gpipe"}]


def at_random(seed: int) -> Pricing:
    def price(candidate: Candidate) -> Price:
        return Price(1.0, Random(f"{seed} {candidate}").random(), 0.5, 0)

    return price


def nothing_known(_: int, __: Runs, ___: int | None) -> float:
    return inf


def at_most(simulations: int, pricing: Pricing) -> Prices:
    return Prices(pricing, Effort(Limits(simulations=simulations)))


def counted(pricing: Pricing, asked: list[Candidate]) -> Callable[[Candidate], Price]:
    def price(candidate: Candidate) -> Price:
        asked.append(candidate)
        return pricing(candidate)

    return price


@examples(5, drawn_anew=10)
@given(st.integers(0, 10_000))
def test_better_search_finds_the_exhaustive_answer_and_prices_no_more(seed: int) -> None:
    """On 200 instances of up to 8 GPUs: ``tests/bench/bench_planner.py``."""
    task = random_task(seed, most_gpus=5)
    space, pricing = search_space(task), pricing_of(task)
    greedy = search_greedily(space, Prices(pricing), ceiling(task))
    better = search_better(space, Prices(pricing), ceiling(task))
    oracle = search_exhaustively(space, Prices(pricing))
    assert oracle.best.price.tokens_per_s == pytest.approx(better.best.price.tokens_per_s, rel=1e-12)
    assert better.best.price.tokens_per_s >= greedy.best.price.tokens_per_s
    assert greedy.best.price == oracle.greedy.price == better.greedy.price
    assert better.cut_off is None
    assert greedy.simulations <= better.simulations <= oracle.simulations


@examples(4, drawn_anew=12)
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_no_candidate_exceeds_what_a_search_says_is_possible(seed: int, simulations: int) -> None:
    task = random_task(seed, most_gpus=4)
    space, pricing, top = search_space(task), pricing_of(task), ceiling(task)
    most = search_exhaustively(space, Prices(pricing)).best.price.tokens_per_s
    for found in (
        search_greedily(space, at_most(simulations, pricing), top),
        search_better(space, at_most(simulations, pricing), top),
        search_exhaustively(space, at_most(simulations, pricing), top),
    ):
        assert found.at_most >= most * (1 - 1e-12)
        assert found.at_most >= found.best.price.tokens_per_s
    complete = search_better(space, Prices(pricing), top)
    assert complete.at_most == complete.best.price.tokens_per_s


@examples(15, drawn_anew=30)
@given(st.integers(0, 10_000))
def test_without_a_ceiling_every_candidate_is_priced(seed: int) -> None:
    space = search_space(random_task(seed))
    better = search_better(space, Prices(at_random(seed)), nothing_known)
    oracle = search_exhaustively(space, Prices(at_random(seed)))
    if not any(space.alike.values()):
        assert better.best == oracle.best
        assert better.simulations == oracle.simulations
    assert oracle.best.price.tokens_per_s >= better.best.price.tokens_per_s >= better.greedy.price.tokens_per_s


def test_datacenters_that_are_alike_are_not_tried_in_each_others_place() -> None:
    task = task_of(document({"a": 1, "b": 1, "c": 1, "d": 1}, 3, variants=GPIPE))
    asked: list[Candidate] = []
    search_better(search_space(task), Prices(counted(at_random(0), asked)), nothing_known)
    assert [candidate.datacenters for candidate in asked] == [("a", "b", "c")]


def test_a_search_that_is_cut_off_reports_it_and_returns_the_greedy_answer_at_least() -> None:
    task = task_of(document({"a": 3, "b": 5, "c": 4}, 4, variants=GPIPE))
    found = search_better(search_space(task), at_most(7, at_random(1)), nothing_known)
    assert found.simulations == 7
    assert found.cut_off == "after 7 simulations"
    assert found.best.price.tokens_per_s >= found.greedy.price.tokens_per_s
    one = search_better(search_space(task), at_most(1, at_random(1)), nothing_known)
    assert (one.simulations, one.cut_off) == (1, "after 1 simulation")


def test_a_search_gives_the_same_twice() -> None:
    task = random_task(29)
    found = [search_better(search_space(task), Prices(pricing_of(task)), ceiling(task)) for _ in range(2)]
    assert found[0] == found[1]


def test_runners_up_are_the_greedy_candidates_of_other_numbers_of_cells() -> None:
    space = search_space(task_of(document({"a": 12}, 2, variants=GPIPE)))
    found = search_better(space, Prices(by_pipelines), lambda pipelines, _, __: float(pipelines), runners_up=3)
    assert [priced.candidate.dp_cells for priced in found.priced] == [6, 5, 4, 3]
    assert search_better(space, at_most(1, at_random(0)), nothing_known, runners_up=3).simulations == 1


def by_pipelines(candidate: Candidate) -> Price:
    return Price(1.0, float(candidate.pipelines), 0.5, 0)


SEARCHES: dict[str, Callable[[SearchSpace, Prices], Found]] = {
    "greedy": lambda space, prices: search_greedily(space, prices, nothing_known),
    "better": lambda space, prices: search_better(space, prices, nothing_known),
    "exhaustive": search_exhaustively,
}


def interrupted(after: int, by: BaseException) -> Pricing:
    """Return a pricing that raises after so many candidates."""
    asked: list[Candidate] = []
    pricing = counted(at_random(3), asked)

    def price(candidate: Candidate) -> Price:
        if len(asked) == after:
            raise by
        return pricing(candidate)

    return price


@pytest.mark.parametrize("name", SEARCHES)
def test_an_interrupt_ends_a_search_with_what_it_has(name: str) -> None:
    task = task_of(document({"a": 6, "b": 5, "c": 4}, 2, variants=GPIPE))
    by = KeyboardInterrupt()
    found = SEARCHES[name](search_space(task), Prices(interrupted(3, by)))
    assert (found.simulations, found.cut_off, found.ended_by) == (3, "when interrupted, after 3 simulations", by)
    assert found.best == min(found.priced, key=lambda priced: priced.rank)
    assert found.greedy in found.priced


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_that_ends_before_the_first_price_has_no_answer(name: str) -> None:
    task = task_of(document({"a": 6, "b": 5}, 2, variants=GPIPE))
    with pytest.raises(NothingPricedError, match=r"^when interrupted, after 0 simulations$") as caught:
        SEARCHES[name](search_space(task), Prices(interrupted(0, KeyboardInterrupt())))
    assert isinstance(caught.value.ended_by, KeyboardInterrupt)
    with pytest.raises(
        NothingPricedError, match=r"^at the limit of 1ns of wall-clock time, after 0 simulations$"
    ) as caught:
        SEARCHES[name](search_space(task), Prices(at_random(1), Effort(Limits(time_s=1e-9))))
    assert caught.value.ended_by is None


@pytest.mark.parametrize("name", SEARCHES)
def test_an_error_of_a_simulation_is_no_end_of_a_search(name: str) -> None:
    task = task_of(document({"a": 6, "b": 5}, 2, variants=GPIPE))
    with pytest.raises(ArithmeticError):
        SEARCHES[name](search_space(task), Prices(interrupted(1, ArithmeticError())))


def test_the_time_limit_holds_while_bounds_alone_are_computed() -> None:
    task = task_of(document({"a": 3, "b": 5, "c": 4}, 4, variants=GPIPE))
    now_s = iter(range(1000))
    effort = Effort(Limits(time_s=20.0), clock=lambda: float(next(now_s)))
    found = search_better(search_space(task), Prices(by_pipelines, effort), lambda pipelines, *_: 1e9 - pipelines)
    assert found.cut_off == f"at the limit of 20s of wall-clock time, after {found.simulations} simulations"
    assert effort.examined > 0


def test_the_time_limit_holds_while_candidates_are_listed() -> None:
    space = replace(search_space(task_of(document({"a": 30, "b": 30}, 4))), cell_size=lambda *_: None)
    now_s = iter(range(1000))
    effort = Effort(Limits(time_s=5.0), clock=lambda: float(next(now_s)))
    with pytest.raises(NothingPricedError, match=r"^at the limit of 5s of wall-clock time"):
        search_exhaustively(space, Prices(at_random(0), effort))


@pytest.mark.parametrize("pipelines", [3, 7, 11])
def test_a_number_of_pipelines_without_a_divisor_is_a_candidate_unless_its_cell_is_large(pipelines: int) -> None:
    # 1 MiB takes 15 ms, which are one and a half forwards: two pipelines would do.
    experiment = document({"a": pipelines, "b": pipelines}, 2)
    experiment["topology"]["wan"]["node_pair_rate"] = "600Mbit"
    candidate = search_space(task_of(experiment)).candidate(pipelines, (("a", 1), ("b", 1)))
    if pipelines > 8:
        assert candidate is None
    else:
        assert candidate == Candidate(1, pipelines, (("a", 1), ("b", 1)))


@pytest.mark.parametrize("name", ["better", "exhaustive"])
def test_nothing_is_proven_where_a_candidate_that_promises_more_was_left_out(name: str) -> None:
    whole = search_space(task_of(document({"a": 6, "b": 6}, 2, variants=GPIPE)))
    space = replace(whole, cell_size=lambda pipelines, _: None if pipelines == 5 else 1)

    def ceiling(pipelines: int, *_: object) -> float:
        return float(10 + pipelines)

    search = search_better if name == "better" else search_exhaustively
    # Of the rest the best is worth 14, and 5 pipelines might be worth 15.
    found = search(space, Prices(lambda candidate: Price(1.0, min(candidate.pipelines, 4) + 10.0, 0.5, 0)), ceiling)
    assert found.best.worth == 14
    assert found.cut_off == LARGE_CELLS_LEFT_OUT
    assert found.at_most >= 15
    # As good as all that is left out, it is the best.
    found = search_better(space, Prices(lambda candidate: Price(1.0, 20.0, 0.5, 0)), ceiling)
    assert (found.cut_off, found.at_most) == (None, 20)


@pytest.mark.parametrize("simulations", range(1, 13))
def test_a_search_that_is_cut_off_counts_what_it_left_out_before(simulations: int) -> None:
    whole = search_space(task_of(document({"a": 6, "b": 6}, 2, variants=GPIPE)))
    space = replace(whole, cell_size=lambda pipelines, _: None if pipelines == 6 else 1)
    prices = at_most(simulations, lambda candidate: Price(1.0, 1.0 + candidate.pipelines, 0.5, 0))
    found = search_better(space, prices, lambda pipelines, *_: 10.0 * pipelines)
    # 6 pipelines are examined first, and left out: they may be worth 60, and those that are left 50 at most.
    assert found.cut_off is not None
    assert found.at_most == 60


@pytest.mark.parametrize("search", [search_greedily, search_better])
def test_the_time_limit_holds_while_the_greedy_walks_are_listed(search: Callable[..., Found]) -> None:
    space = search_space(task_of(document({"a": 100}, 2, variants=GPIPE)))
    bounded: list[int] = []

    def ceiling(pipelines: int, *_: object) -> float:
        bounded.append(pipelines)
        return 1.0

    now_s = iter(range(1000))
    effort = Effort(Limits(time_s=5.0), clock=lambda: float(next(now_s)))
    with pytest.raises(NothingPricedError, match=r"^at the limit of 5s of wall-clock time, after 0 simulations$"):
        search(space, Prices(at_random(0), effort), ceiling)
    assert bounded == [1, 2, 3, 4]


def test_the_better_search_is_interrupted_before_its_first_bound() -> None:
    space = search_space(task_of(document({"a": 100}, 2, variants=GPIPE)))

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(NothingPricedError, match=r"^when interrupted, after 0 simulations$"):
        search_better(space, Prices(at_random(0)), lambda *_: 1.0, limit_simulations=interrupt)


def test_the_greedy_search_leaves_out_what_cannot_be_best() -> None:
    space = search_space(task_of(document({"a": 12}, 2, variants=GPIPE)))
    found = search_greedily(space, Prices(by_pipelines), lambda pipelines, _, __: float(pipelines), runners_up=2)
    assert [priced.candidate.dp_cells for priced in found.priced] == [6, 5, 4]
    assert found.best == found.greedy == found.priced[0]


def test_an_interrupt_of_the_comparison_leaves_the_search_complete() -> None:
    space = search_space(task_of(document({"a": 12}, 2, variants=GPIPE)))
    prices = Prices(interrupted(1, KeyboardInterrupt()))
    found = search_better(space, prices, lambda pipelines, _, __: pipelines / 1e9, runners_up=3)
    assert (found.simulations, found.cut_off) == (1, None)
    assert found.ended_by is not None


def known_when_whole(pipelines: int, runs: Runs, _: int | None) -> float:
    return float(pipelines) if runs else 100.0


def test_what_a_search_that_was_cut_off_leaves_open_is_what_has_no_price() -> None:
    space = search_space(task_of(document({"a": 12}, 2, variants=GPIPE)))
    halves = Prices(lambda candidate: Price(1.0, candidate.pipelines / 2, 0.5, 0), Effort(Limits(simulations=2)))
    found = search_better(space, halves, known_when_whole)
    assert [priced.candidate.dp_cells for priced in found.priced] == [6, 5]
    assert (found.at_most, found.cut_off) == (4.0, "after 2 simulations")


def test_a_search_whose_rest_promises_no_more_is_complete_at_its_limit() -> None:
    space = search_space(task_of(document({"a": 12}, 2, variants=GPIPE)))

    def top(pipelines: int, _: Runs, cell: int | None) -> float:
        return float(pipelines) if cell else 100.0 + pipelines

    found = search_better(space, Prices(by_pipelines, Effort(Limits(simulations=1))), top)
    assert (found.simulations, found.at_most, found.cut_off) == (1, found.best.price.tokens_per_s, None)


def test_what_promises_the_most_is_known_without_a_simulation() -> None:
    space = search_space(task_of(document({"a": 12}, 2, variants=GPIPE)))
    walks = promising_walks(space, lambda pipelines, _, __: float(pipelines), 2)
    assert [(candidate.dp_cells, most) for candidate, most in walks] == [(6, 6.0), (5, 5.0)]


def test_what_promises_the_most_has_a_place() -> None:
    """Two DP-cells of two stages each do not fit on three GPUs in one datacenter and one in another."""
    space = search_space(task_of(document({"a": 3, "b": 1}, 2, variants=GPIPE)))
    walks = promising_walks(space, lambda pipelines, _, __: float(pipelines), 9)
    assert all(candidate is not None for candidate, _ in walks)
    assert len(walks) == len({candidate for candidate, _ in walks}) > 0


def test_what_promises_the_most_is_chosen_from_what_the_time_allows() -> None:
    space = search_space(task_of(document({"a": 12}, 2, variants=GPIPE)))
    now_s = iter(range(1000))
    effort = Effort(Limits(time_s=4.0), clock=lambda: float(next(now_s)))
    walks = promising_walks(space, lambda pipelines, _, __: float(pipelines), 2, effort)
    assert [(candidate.dp_cells, most) for candidate, most in walks] == [(3, 3.0), (2, 2.0)]


def test_a_search_ends_after_so_many_partial_placements(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(document({"a": 3, "b": 5, "c": 4}, 4, variants=GPIPE))
    assert search_better(search_space(task), Prices(at_random(1)), nothing_known).cut_off is None
    monkeypatch.setattr("wanbed.runner.planner.search.MOST_PARTIAL_PLACEMENTS", 3)
    limits = Effort()
    cut = search_better(search_space(task), Prices(at_random(1), limits), nothing_known)
    assert cut.cut_off == "after examining 3 partial placements"
    assert limits.examined == 4
