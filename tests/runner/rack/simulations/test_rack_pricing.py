from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.support.runner.planner_instances import random_task
from tests.support.runner.tasks_at_hand import TasksAtHand
from wanbed.ground.strict_model import InputError
from wanbed.runner.planner.effort import Effort, LimitReachedError, Limits
from wanbed.runner.planner.planning import plan
from wanbed.runner.planner.pricing import Pricer
from wanbed.runner.planner.search_space import Candidate
from wanbed.runner.rack.simulations.rack_pricing import RackPricing, rack_spread_of

ONE, TWO, THREE, BAD = (Candidate(cells, 1, (("east", 2),)) for cells in (1, 2, 3, 4))


@dataclass(frozen=True)
class Cells:
    """Stands for a resolved variant."""

    cells: int
    schedule: str = "rackmine:Mine"

    @property
    def at_once(self) -> "tuple[Cells]":
        return (self,)


@dataclass
class CellCounter:
    """Stands for a pricer: a candidate's price is its number of DP-cells."""

    priced: list[int] = field(default_factory=list)

    def price(self, variant: "Cells") -> int:
        self.priced.append(variant.cells)
        return variant.cells


def resolve(candidate: Candidate) -> Any:
    if candidate == BAD:
        raise InputError("no such schedule")
    return Cells(candidate.dp_cells)


def pricing(tasks: TasksAtHand, limits: Limits | None = None) -> RackPricing:
    return RackPricing(tasks, cast("Pricer", CellCounter()), resolve, Effort(limits or Limits()))


def test_what_is_expected_is_begun_as_far_as_there_is_room() -> None:
    tasks = TasksAtHand(at_a_time=2)
    priced = pricing(tasks)
    priced.expect(iter((ONE, TWO, THREE)))
    assert len(tasks.started) == 2
    assert [priced(each) for each in (ONE, TWO, THREE)] == [1, 2, 3]
    assert len(tasks.started) == 3


def test_machines_are_told_which_schedules_of_a_user_a_candidate_follows() -> None:
    tasks = TasksAtHand()
    pricing(tasks)(ONE)
    assert tasks.schedules == [("rackmine:Mine",)]


def test_what_is_expected_and_fails_is_reported_only_if_it_is_asked_for() -> None:
    priced = pricing(TasksAtHand())
    priced.expect(iter((BAD, ONE)))
    assert priced(ONE) == 1
    with pytest.raises(InputError, match="no such schedule"):
        priced(BAD)


def test_what_nobody_asked_for_is_ended() -> None:
    tasks = TasksAtHand()
    priced = pricing(tasks)
    priced.expect(iter((ONE, TWO)))
    priced(ONE)
    priced.end()
    assert tasks.cancelled == [1]


def test_limits_hold_while_a_machine_simulates() -> None:
    priced = pricing(TasksAtHand(looks=1), Limits(time_s=0.0))
    with pytest.raises(LimitReachedError):
        priced(ONE)


def test_expected_candidates_are_taken_only_when_there_is_room() -> None:
    taken: list[Candidate] = []

    def likely() -> Iterator[Candidate]:
        for candidate in (ONE, TWO, THREE):
            taken.append(candidate)
            yield candidate

    pricing(TasksAtHand(at_a_time=1)).expect(likely())
    assert taken == [ONE]


# To price everything is dear, and two plans of eight show it.
EXHAUSTIVELY = (3, 6)


@pytest.mark.parametrize(
    ("seed", "search"),
    [
        pytest.param(
            seed, search, marks=pytest.mark.soak if search == "exhaustive" and seed not in EXHAUSTIVELY else ()
        )
        for seed in range(8)
        for search in ("greedy", "better", "exhaustive")
    ],
)
def test_every_search_finds_the_plan_that_it_finds_without_a_rack(seed: int, search: Any) -> None:
    tasks = TasksAtHand(at_a_time=3)
    alone = plan(random_task(seed), search, runners_up=3)
    assert plan(random_task(seed), search, runners_up=3, spread=rack_spread_of(tasks)) == alone
