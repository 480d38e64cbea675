from tests.support.runner.planner_instances import document, task_of
from wanbed.runner.planner.algorithm1 import greedy_candidates
from wanbed.runner.planner.candidate import Candidate
from wanbed.runner.planner.planning import search_space

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
