from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest

from tests.support.refused import refused
from tests.support.runner.planner_instances import ATLAS, document, planned_pricing, pricing_of, random_task, task_of
from tests.support.runner.small_experiment import sweep_point
from wanbed.ground.errors import InputError
from wanbed.runner.planner.effort import Effort, Limits
from wanbed.runner.planner.planning import plan, planned_placement, search_space
from wanbed.runner.planner.pricing import Pricer
from wanbed.runner.planner.search import NothingPricedError, every_candidate
from wanbed.runner.planner.search_space import Candidate, Price
from wanbed.runner.resolve.cell_costs import pipelines_to_share
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.placement import place_stages
from wanbed.runner.resolve.resolved_variant import ResolvedVariant

FAR = {"latency": "80ms", "node_pair_rate": "100Mbit", "rate": "100Gbit"}


def test_fewer_datacenters_than_are_offered_can_be_the_better_answer() -> None:
    # A third pipeline fits if both datacenters train, over a link on which a transfer lasts eight forwards.
    task = task_of(document({"near": 6, "far": 3}, 3, links=[{"between": ["near", "far"], **FAR}]))
    pricing = pricing_of(task)
    found = plan(task, pricing=pricing)
    assert found.chosen.candidate == Candidate(2, 1, (("near", 3),))
    assert found.unused == {"near": 0, "far": 3}
    assert pricing(Candidate(1, 3, (("near", 2), ("far", 1)))).tokens_per_s < found.chosen.price.tokens_per_s


def test_better_search_orders_datacenters_by_their_links_and_greedy_does_not() -> None:
    # The largest first means a, b, c and the slow link between a and b; b, c, a and its like go without.
    task = task_of(document({"a": 3, "b": 2, "c": 2}, 7, links=[{"between": ["a", "b"], **FAR}]))
    greedy = plan(task, "greedy", pricing=pricing_of(task))
    better = plan(task, pricing=pricing_of(task))
    assert greedy.chosen.candidate.datacenters == ("a", "b", "c")
    assert better.chosen.candidate.datacenters in {("a", "c", "b"), ("b", "c", "a")}
    assert better.chosen.price.tokens_per_s > 1.5 * greedy.chosen.price.tokens_per_s
    assert better.greedy == greedy.chosen == better.runners_up[-1]
    assert [better.found_by(priced) for priced in (better.chosen, better.greedy)] == ["better", "greedy"]


def test_runners_up_are_the_best_of_each_cell_count_and_the_greedy_answer() -> None:
    task = random_task(16)
    found = plan(task, "exhaustive", pricing=pricing_of(task))
    cells = [priced.candidate.dp_cells for priced in found.runners_up if priced != found.greedy]
    assert len(cells) == len(set(cells) | {found.chosen.candidate.dp_cells}) - 1
    assert found.greedy in found.runners_up
    assert len(set(cells)) > 1
    assert list(found.runners_up) == sorted(found.runners_up, key=lambda priced: priced.rank)


def test_pipelines_that_are_given_are_kept() -> None:
    task = task_of(document({"a": 8, "b": 8}, 3), pipelines=4)
    found = plan(task, "exhaustive", pricing=pricing_of(task))
    assert {priced.candidate.pipelines for priced in (found.chosen, found.greedy, *found.runners_up)} == {4}


@pytest.mark.parametrize(
    ("gpus", "stages", "pipelines", "text"),
    [
        ({"a": 2, "b": 3}, 6, None, "6 stages need 6 GPUs, one each, and the hosts have 5 (a 2, b 3): add hosts"),
        ({"a": 3, "b": 3}, 3, 2, "2 pipelines of 3 stages, replicas of a stage in one datacenter, do not fit the GPUs"),
    ],
)
def test_where_nothing_fits_the_stages_and_the_gpus_are_reported(
    gpus: dict[str, int], stages: int, pipelines: int | None, text: str
) -> None:
    assert refused(
        lambda: plan(task_of(document(gpus, stages), pipelines), pricing=lambda _: Price(1.0, 1.0, 1.0, 0))
    ).startswith(f"training.stages: {text}")


def test_too_few_gpus_for_one_dp_cell_are_refused() -> None:
    cells = {"name": "atlas", "schedule": "atlas", "transport": {"sharing": "temporal", "pipelines_per_cell": 4}}
    with pytest.raises(InputError, match=r"^training.stages: 4 pipelines of 3 stages need 12 GPUs, one each"):
        plan(task_of(document({"a": 5, "b": 5}, 3, variants=[cells])))


def test_too_many_candidates_for_exhaustive_search_are_refused_with_the_remedy() -> None:
    task = task_of(document(dict.fromkeys("abcdef", 40), 12, variants=[{"name": "v", "schedule": "gpipe"}]))
    with pytest.raises(
        InputError, match=r"^--search exhaustive: there are more than 2000 candidates.*: give --search better$"
    ):
        plan(task, "exhaustive", pricing=lambda _: Price(1.0, 1.0, 1.0, 0))


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        (
            "dp",
            "variants.0.schedule: dp places whole replicas, and stages are planned: take a schedule that cuts the "
            "model into stages",
        ),
        ("torch-gpipe", "variants.0.schedule: torch-gpipe is a baseline, which is not simulated: it has no plan"),
    ],
)
def test_what_has_no_stages_to_place_or_is_not_simulated_is_refused(schedule: str, text: str) -> None:
    assert refused(lambda: task_of(document({"a": 2}, 1, variants=[{"name": "v", "schedule": schedule}]))) == text


def test_equal_tasks_are_planned_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def priced_by_plan(topology: Any, resolve: Any, context: int, *_: object, **__: object) -> object:
        asked.append(resolve)
        return planned_pricing(topology, resolve, context)

    monkeypatch.setattr("wanbed.runner.planner.planning.simulated_pricing", priced_by_plan)
    planned_placement.cache_clear()
    placements = [planned_placement(task_of(document({"a": 4, "b": 5}, 3), pipelines=1)).datacenters for _ in range(2)]
    planned_placement.cache_clear()
    assert placements == [("b", "b", "b")] * 2
    assert len(asked) == 1


@pytest.mark.parametrize(("microbatches", "simulations"), [(1, 200), (1000, 10)])
def test_a_search_affords_fewer_simulations_the_more_each_of_them_computes(microbatches: int, simulations: int) -> None:
    training = {"stages": 6, "microbatches": microbatches}
    links = [{"between": ["a", "b"], "latency": "20ms"}, {"between": ["c", "d"], "latency": "30ms"}]
    task = task_of(document(dict.fromkeys("abcde", 5), 6, training=training, links=links))
    found = plan(task, pricing=lambda _: Price(1.0, 1e-6, 1.0, 0))
    assert found.cut_off == f"after {simulations} simulations"
    assert not found.proven


def test_a_search_with_a_limit_of_time_simulates_as_many_as_that_allows() -> None:
    links = [{"between": ["a", "b"], "latency": "20ms"}, {"between": ["c", "d"], "latency": "30ms"}]
    training = {"stages": 6, "microbatches": 1000}
    task = task_of(document(dict.fromkeys("abcde", 5), 6, training=training, links=links))
    numbers = count()

    def pricing(_: Candidate) -> Price:
        if next(numbers) == 15:
            raise KeyboardInterrupt
        return Price(1.0, 1e-6, 1.0, 0)

    assert plan(task, limits=Limits(time_s=3600.0), pricing=pricing).simulations == 15


@pytest.mark.parametrize("activation", [None, {"wire": "int8", "encode": "500MB/s"}])
def test_a_cell_is_as_large_as_that_of_a_variant_in_the_same_places(activation: dict[str, Any] | None) -> None:
    links = [{"between": ["b", "c"], "latency": "40ms", "node_pair_rate": "400Mbit", "rate": "1Gbit"}]
    transport = {**ATLAS["transport"], **({} if activation is None else {"activation": activation})}
    experiment = document({"a": 4, "b": 6, "c": 3}, 3, links=links, variants=[{**ATLAS, "transport": transport}])
    found = []
    candidates = every_candidate(search_space(task_of(experiment)))
    for candidate in (each for each in candidates if each is not None and len(each.runs) > 1):
        (variant,) = experiment["variants"]
        placed = {**variant, "placement": [name for name, stages in candidate.runs for _ in range(stages)]}
        training = {**experiment["training"], "pipelines": candidate.pipelines}
        (resolved,) = sweep_point({**experiment, "variants": [placed], "training": training}).variants
        assert isinstance(resolved, PipelineVariant)
        assert candidate.pipelines_per_cell == resolved.pipelines_per_cell
        found.append(resolved.pipelines_per_cell)
    # 1 MiB takes 21 ms, two forwards and more. Encoded it takes 10.5 ms, less than a forward and its encoding.
    assert (max(found) > 1) == (activation is None)


@pytest.mark.parametrize("gpus_per_host", [1, 4])
def test_a_cell_is_as_large_as_that_of_a_variant_placed_alike(gpus_per_host: int) -> None:
    links = [{"between": ["b", "c"], "latency": "40ms", "node_pair_rate": "200Mbit", "rate": "1Gbit"}]
    experiment = document({"a": 4, "b": 6, "c": 3}, 3, links=links)
    for datacenter in experiment["topology"]["datacenters"]:
        datacenter["gpus_per_host"] = gpus_per_host
    task = task_of(experiment)
    candidates = [each for each in every_candidate(search_space(task)) if each is not None]
    assert len({candidate.pipelines_per_cell for candidate in candidates}) > 1
    for candidate in candidates:
        placement = place_stages(task.topology, task.stages, candidate.pipelines, candidate.placement)
        shared = pipelines_to_share(task.topology, placement, task.transport, task.costs.usual)
        assert candidate.pipelines_per_cell == shared


def test_a_better_search_ends_at_its_time_limit_before_it_knows_how_much_it_can_afford() -> None:
    reports = []
    with pytest.raises(NothingPricedError, match=r"^at the limit of 1ns of wall-clock time, after 0 simulations$"):
        plan(task_of(document({"a": 100}, 2)), limits=Limits(time_s=1e-9), report=reports.append)
    assert [(effort.examined, effort.limits.simulations) for effort in reports] == [(0, None)]


@dataclass
class OneAtATime:
    """A spread over nothing: candidates are priced in this process, and those expected are written down."""

    pricer: Pricer
    resolve: Callable[[Candidate], ResolvedVariant]
    expected: list[Candidate]

    def __call__(self, candidate: Candidate) -> Price:
        return self.pricer.price(self.resolve(candidate))

    def expect(self, candidates: Iterator[Candidate]) -> None:
        self.expected += candidates


def test_a_search_that_is_spread_has_the_same_plan_and_says_which_candidates_are_next() -> None:
    task = task_of(document({"a": 4, "b": 3}, 2, training={"stages": 2, "microbatches": 2, "iterations": 2}))
    made: list[OneAtATime] = []

    @contextmanager
    def spread(
        pricer: Pricer, resolve: Callable[[Candidate], ResolvedVariant], _effort: Effort
    ) -> Iterator[OneAtATime]:
        made.append(OneAtATime(pricer, resolve, []))
        yield made[0]

    found = plan(task, runners_up=1, spread=spread, explained=True)
    assert found == plan(task, runners_up=1, explained=True)
    assert found.chosen.price.bottleneck is not None
    assert found.chosen.candidate in made[0].expected
    assert plan(task, runners_up=1).chosen.price.bottleneck is None


def test_a_gap_is_what_another_candidate_might_have_more() -> None:
    task = task_of(document({"a": 4, "b": 3}, 2))
    found = plan(task, pricing=pricing_of(task))
    best = found.chosen.price.tokens_per_s
    for times, proven, gap in ((1, True, 0), (1.25, False, pytest.approx(0.25))):
        bounded = replace(found, at_most=times * best)
        assert (bounded.proven, bounded.gap) == (proven, gap)
    assert (task.counted, task.counted_per_sequence) == ("tokens", 4096)
    plain = task_of({**document({"a": 2}, 2), "model": None})
    assert (plain.counted, plain.counted_per_sequence) == ("sequences", 1)
