"""Changes of the order of one stage."""

from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.planning.stage_order import moves, recompute_moves

FORWARD, INPUT, WEIGHT = ActionKind.FORWARD, ActionKind.BACKWARD_INPUT, ActionKind.BACKWARD_WEIGHT
RECOMPUTE = ActionKind.RECOMPUTE


def test_an_action_moves_before_the_one_before_it_and_before_all_that_are_alike() -> None:
    assert list(moves((INPUT, WEIGHT, WEIGHT, FORWARD), 3))[:2] == [
        (INPUT, WEIGHT, FORWARD, WEIGHT),
        (INPUT, FORWARD, WEIGHT, WEIGHT),
    ]
    assert list(moves((INPUT, WEIGHT, FORWARD), 2)) == [(INPUT, FORWARD, WEIGHT)]


def test_a_weight_that_another_action_follows_moves_behind_each_later_one() -> None:
    assert list(moves((WEIGHT, FORWARD, INPUT, FORWARD), 1)) == [
        (FORWARD, WEIGHT, INPUT, FORWARD),
        (FORWARD, INPUT, WEIGHT, FORWARD),
        (FORWARD, INPUT, FORWARD, WEIGHT),
    ]


def test_a_recompute_moves_before_each_earlier_action() -> None:
    order = (FORWARD, FORWARD, INPUT, RECOMPUTE)
    moved = {tuple(each).index(RECOMPUTE) for each in (*moves(order, 3), *recompute_moves(order, 3))}
    assert moved == {0, 1, 2}
