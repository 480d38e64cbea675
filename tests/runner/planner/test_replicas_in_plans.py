"""Plans where GPUs differ: slower ones are priced as they are, and nothing that is drawn decides a plan."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.runner.planner_instances import document, task_of
from wanbed.runner.planner.planning import ceiling, plan, search_space
from wanbed.runner.planner.pricing import simulated_pricing
from wanbed.runner.planner.search import every_candidate
from wanbed.runner.resolve.tcp_effects import TcpEffects


def two(slower: list[dict[str, Any]], schedule: str = "gpipe", **compute: Any) -> dict[str, Any]:
    """Two datacenters of 3 GPUs that differ in nothing, for 2 stages."""
    own = document({"a": 3, "b": 3}, 2, variants=[{"name": "v", "schedule": schedule}])
    return {**own, "compute": {**own["compute"], "slower": slower, **compute}}


@pytest.mark.parametrize(("slow", "chosen"), [("a", "b"), ("b", "a")])
def test_a_plan_takes_the_faster_of_two_datacenters(slow: str, chosen: str) -> None:
    found = plan(task_of(two([{"datacenter": slow, "factor": 2}]), pipelines=1))
    assert found.chosen.candidate.datacenters == (chosen,)
    assert found.proven


def test_datacenters_are_alike_if_their_gpus_are() -> None:
    def alike(*slower: dict[str, Any]) -> tuple[str, ...]:
        return search_space(task_of(two(list(slower)))).alike["b"]

    assert alike() == alike({"stage": 1, "factor": 2}) == ("a",)
    assert alike({"datacenter": "a", "factor": 2}) == alike({"host": "b-1", "factor": 2}) == ()
    assert alike({"datacenter": "a", "factor": 2}, {"datacenter": "b", "factor": 2}) == ("a",)


def test_tasks_with_other_gpus_are_other_tasks() -> None:
    assert task_of(two([{"datacenter": "a", "factor": 2}])) != task_of(two([{"datacenter": "b", "factor": 2}]))


factors = st.sampled_from([0.3, 0.8, 1.5, 4])
entries = st.builds(
    lambda choice, factor: {**choice, "factor": factor},
    st.sampled_from([{"datacenter": "a"}, {"host": "b-0"}, {"stage": 1}, {"pipeline": 0}, {"host": "a-2", "stage": 0}]),
    factors,
)


@settings(max_examples=30, deadline=None)
@given(st.lists(entries, max_size=3), st.sampled_from(["gpipe", "1f1b", "zb-h1", "atlas"]), st.data())
def test_no_candidate_gives_more_than_its_ceiling(
    slower: list[dict[str, Any]], schedule: str, data: st.DataObject
) -> None:
    task = task_of(two(slower, schedule))
    candidate = data.draw(st.sampled_from(list(every_candidate(search_space(task)))))
    pricing = simulated_pricing(task.topology, task.resolve, task.counted_per_sequence, TcpEffects(), task.iterations)
    top = ceiling(task)(candidate.pipelines, candidate.runs, candidate.pipelines_per_cell)
    assert pricing(candidate).tokens_per_s <= top


def test_jitter_does_not_decide_a_plan() -> None:
    usual, drawn = (plan(task_of(two([], **compute), pipelines=1)) for compute in ({}, {"jitter": {"spread": "20%"}}))
    assert usual.chosen == drawn.chosen
