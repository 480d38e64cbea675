from math import comb, perm

import pytest

from tests.support.runner.planner_instances import document, task_of
from wanbed.runner.planner.exhaustive import TooManyCandidatesError, every_candidate, few_candidates
from wanbed.runner.planner.planning import search_space


def test_there_is_every_order_of_datacenters_and_every_cut_between_them() -> None:
    space = search_space(task_of(document({"a": 5, "b": 5, "c": 5, "d": 5}, 5), pipelines=1))
    expected = sum(perm(4, used) * comb(4, used - 1) for used in range(1, 5))
    assert len(list(every_candidate(space))) == expected


def test_too_many_are_refused_before_any_is_priced() -> None:
    space = search_space(task_of(document({"a": 5, "b": 5, "c": 5, "d": 5}, 5), pipelines=1))
    assert len(few_candidates(space, most=292)) == 292
    with pytest.raises(TooManyCandidatesError, match="more than 291 candidates"):
        few_candidates(space, most=291)
