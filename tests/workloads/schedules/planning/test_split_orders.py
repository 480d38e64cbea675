"""The run of given orders, and the period that it says: the longest part of any stage."""

from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts
from wanbed.workloads.schedules.planning.split_orders import OrderedPipeline, _moves

FORWARD, INPUT, WEIGHT = ActionKind.FORWARD, ActionKind.BACKWARD_INPUT, ActionKind.BACKWARD_WEIGHT


def test_a_stages_part_lasts_from_the_begin_of_its_first_action_to_the_end_of_its_last() -> None:
    costs = CellCosts(PipelineShape(1, 1), 1, (30,), (50,), (0,), (), backward_input_ns=(20,), backward_weight_ns=(7,))
    run = OrderedPipeline(costs).run(((FORWARD, INPUT, WEIGHT),))
    assert run is not None
    assert (run.period_ns, run.makespan_ns) == (57, 57)


def test_the_longest_part_is_the_period_and_the_way_to_a_stage_is_no_part_of_its_own() -> None:
    costs = CellCosts(
        PipelineShape(2, 1),
        1,
        (30, 500),
        (27, 27),
        (0, 0),
        (BoundaryCosts(100, 0, False),),
        backward_input_ns=(20, 20),
        backward_weight_ns=(7, 900),
    )
    run = OrderedPipeline(costs).run(((FORWARD, INPUT, WEIGHT),) * 2)
    assert run is not None
    # Stage 1 begins when its activation comes, 130 ns after stage 0.
    assert (run.period_ns, run.makespan_ns) == (500 + 20 + 900, 130 + 500 + 20 + 900)


def test_an_action_moves_before_the_one_before_it_and_before_all_that_are_alike() -> None:
    assert list(_moves((INPUT, WEIGHT, WEIGHT, FORWARD), 3))[:2] == [
        (INPUT, WEIGHT, FORWARD, WEIGHT),
        (INPUT, FORWARD, WEIGHT, WEIGHT),
    ]
    assert list(_moves((INPUT, WEIGHT, FORWARD), 2)) == [(INPUT, FORWARD, WEIGHT)]


def test_a_weight_that_another_action_follows_moves_behind_each_later_one() -> None:
    assert list(_moves((WEIGHT, FORWARD, INPUT, FORWARD), 1)) == [
        (FORWARD, WEIGHT, INPUT, FORWARD),
        (FORWARD, INPUT, WEIGHT, FORWARD),
        (FORWARD, INPUT, FORWARD, WEIGHT),
    ]
