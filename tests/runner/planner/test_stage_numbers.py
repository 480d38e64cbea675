"""The number of stages is searched where the file leaves it open."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.present import present
from tests.support.refused import refused
from tests.support.runner.planner_instances import document
from wanbed.ground.strict_model import parse_model
from wanbed.runner.experiment.experiment_spec import ExperimentSpec
from wanbed.runner.planner.effort import Effort, Limits
from wanbed.runner.planner.goal import CostLimit, Goal, Objective
from wanbed.runner.planner.planning import Plan, PlanningTask, fullest_stage, plan, planning_task
from wanbed.runner.planner.search import NothingPricedError
from wanbed.runner.planner.stage_numbers import (
    StagesPlan,
    leaves_stages_open,
    plan_stages,
    stage_numbers,
    with_stages,
)
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.testbed.network.topology import resolve_topology

ONE_F_ONE_B = {"name": "v", "schedule": "1f1b", "transport": {"model": "ideal"}}


def written(gpus: dict[str, int], *, training: dict[str, Any] | None = None, **changes: Any) -> WrittenVariant:
    changes.setdefault("compute", {"profile": "a100"})
    changes.setdefault("variants", [ONE_F_ONE_B])
    base = document(gpus, 1, **changes)
    base["training"] = {"microbatches": 4, **(training or {})}
    spec = parse_model(ExperimentSpec, base, "exp.yaml")
    return WrittenVariant(spec, 0, resolve_topology(spec.topology), Path())


def searched(task: PlanningTask, limits: Limits) -> Plan:
    return plan(task, limits=limits)


def planned(of: WrittenVariant, limits: Limits | None = None, **options: Any) -> StagesPlan:
    return plan_stages(stage_numbers(of), searched, limits or Limits(), **options)


@pytest.mark.parametrize("memory", [{}, {"memory": "40GiB"}, {"memory": "24GiB"}])
def test_the_answer_is_the_best_of_the_plans_of_every_number(memory: dict[str, str]) -> None:
    of = written({"east": 5, "west": 4}, training=memory)
    found = planned(of)
    each = [
        searched(planning_task(with_stages(of, number.stages), pipelines=None), Limits())
        for number in found.of_stages
        if number.at_most is not None
    ]
    assert found.found.chosen.price == max((one.chosen.price for one in each), key=lambda price: price.tokens_per_s)
    assert found.found.chosen.candidate.stages == found.task.stages
    assert found.found.proven
    assert found.found.cut_off is None


def test_fewer_stages_are_better_until_a_stage_no_longer_fits() -> None:
    wide, narrow = (planned(written({"east": 12}, training=memory)) for memory in ({}, {"memory": "24GiB"}))
    assert wide.task.stages == 1
    assert narrow.task.stages > 1
    refusals = [number.why for number in narrow.of_stages if number.stages < narrow.task.stages]
    assert all("with a single microbatch, more than 24GiB" in why for why in refusals[:1])
    fullest = fullest_stage(narrow.task, narrow.found.chosen.candidate)
    assert fullest is not None
    assert fullest[2].total_bytes <= 24 * 2**30


def test_every_number_has_an_outcome_in_order() -> None:
    found = planned(written({"east": 5, "west": 4}, training={"memory": "40GiB"}))
    assert [number.stages for number in found.of_stages] == list(range(1, 10))
    best = found.found.chosen.price.tokens_per_s
    for number in found.of_stages:
        assert bool(number.why) == (number.found is None)
        if number.why == "by its bound":
            assert 0 < present(number.at_most) <= best
    assert found.found.simulations == sum(number.found.simulations for number in found.of_stages if number.found)


def test_no_number_is_planned_that_its_bound_rules_out() -> None:
    asked: list[int] = []

    def search(task: PlanningTask, limits: Limits) -> Plan:
        asked.append(task.stages)
        return searched(task, limits)

    found = plan_stages(stage_numbers(written({"east": 12})), search, Limits())
    assert asked == sorted({number.stages for number in found.of_stages if number.found is not None})
    assert len(asked) < len(found.of_stages)


class _Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def limited_search(clock: _Clock, takes_s: float, seen: list[Limits]) -> Callable[[PlanningTask, Limits], Plan]:
    def search(task: PlanningTask, limits: Limits) -> Plan:
        seen.append(limits)
        clock.now_s += takes_s
        return searched(task, Limits())

    return search


def test_numbers_share_the_time_and_what_one_leaves_goes_to_the_next() -> None:
    clock, seen = _Clock(), list[Limits]()
    of = written({"east": 2, "west": 2}, training={"memory": "60GiB"})
    limits = Limits(time_s=8.0, first_s=300.0)
    numbers = stage_numbers(of)
    found = plan_stages(numbers, limited_search(clock, 0.5, seen), limits, Effort(limits, clock=clock))
    most = len(numbers.promising)
    assert seen[0].time_s == 8.0 / most
    assert [each.first_s for each in seen] == [300.0, *(0.0 for _ in seen[1:])]
    parts_s = [present(each.time_s) for each in seen]
    assert parts_s == sorted(parts_s)
    assert found.found.cut_off is None


def test_what_the_time_does_not_reach_leaves_a_gap() -> None:
    clock, seen = _Clock(), list[Limits]()
    of = written({"east": 2, "west": 2}, training={"memory": "60GiB"})
    limits = Limits(time_s=1.0)
    found = plan_stages(stage_numbers(of), limited_search(clock, 2.0, seen), limits, Effort(limits, clock=clock))
    assert len(seen) == 1
    found_of, best = found.found, found.found.chosen.price.tokens_per_s
    late = [present(number.at_most) for number in found.of_stages if number.why == "not reached within the limit"]
    assert min(late) > best
    assert (found_of.cut_off, found_of.at_most) == ("not reached within the limit", max(late))


def test_a_limit_of_simulations_is_for_all_numbers_together() -> None:
    found = planned(written({"east": 5, "west": 4}), Limits(simulations=3))
    assert found.found.simulations <= 3


def test_without_an_answer_the_search_says_why() -> None:
    def search(_task: PlanningTask, _limits: Limits) -> Plan:
        raise NothingPricedError("at the limit of 1s", None)

    with pytest.raises(NothingPricedError, match="at the limit of 1s"):
        plan_stages(stage_numbers(written({"east": 4})), search, Limits())


def test_if_no_number_fits_the_last_refusal_is_told() -> None:
    of = written({"east": 2}, training={"memory": "1GiB"})
    assert refused(lambda: stage_numbers(of)).startswith("training.memory: stage 0 of 2 takes ")


@pytest.mark.parametrize(
    ("changes", "is_open"),
    [
        ({}, True),
        ({"training": {"stages": 2}}, False),
        ({"variants": [{**ONE_F_ONE_B, "training": {"stages": 2}}]}, False),
        ({"compute": {"forward": "10ms", "activation": "1MiB", "gradient": "1MiB"}}, False),
        ({"compute": {"profile": "a100", "gradient": "1MiB"}}, False),
        ({"compute": {"profile": "a100", "activation": ["1MiB"]}}, False),
        ({"compute": {"profile": "a100", "activation": "1MiB"}}, True),
        ({"compute": {"profile": "a100", "checkpointing": [True, False]}}, False),
        ({"compute": {"profile": "a100", "slower": [{"stage": 1, "factor": 2}]}}, False),
        ({"compute": {"profile": "a100", "slower": [{"host": "east-0", "factor": 2}]}}, True),
    ],
)
def test_the_number_is_open_where_nothing_in_the_file_fixes_it(changes: dict[str, Any], is_open: bool) -> None:
    assert leaves_stages_open(written({"east": 4}, **changes)) is is_open


PRICES = {"east": {"gpu_price": "2USD/h"}, "west": {"gpu_price": "1USD/h"}}


@pytest.mark.parametrize(
    "goal", [Goal(Objective.COST), Goal(limit=CostLimit(6.0, "USD/h")), Goal(limit=CostLimit(0.5, "USD/h"))]
)
def test_every_number_is_planned_for_the_goal(goal: Goal) -> None:
    of = written({"east": 4, "west": 3}, training={"memory": "40GiB"}, prices=PRICES)
    numbers = stage_numbers(of, goal)
    found = plan_stages(numbers, searched, Limits())
    plans = [
        searched(planning_task(with_stages(of, task.stages), pipelines=None, goal=goal), Limits())
        for _, task in numbers.promising
    ]
    assert found.found.chosen.worth == max(each.chosen.worth for each in plans)
    assert found.found.proven
    assert found.found.within_limit == (goal.limit is None or goal.limit.usd > 1)
