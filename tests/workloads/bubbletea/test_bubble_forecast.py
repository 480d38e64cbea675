from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings

from tests.workloads.schedules.planning.test_cell_planner import cells
from wanbed.workloads.bubbletea.bubble_forecast import BubbleForecast, IterationPlan, PlannedAction, planned_iterations
from wanbed.workloads.bubbletea.messages import ENDLESS_NS, BubbleReport
from wanbed.workloads.bubbletea.prefill_settings import PrefillSettings
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts, CellPlan
from wanbed.workloads.schedules.planning.cell_planner import plan_cell

SETTINGS = PrefillSettings(slo_ns=1, switch_ns=2, guard_ns=1, warmup_iterations=0, window=3)

PLAN = IterationPlan((PlannedAction(("forward", 0), 0, 10), PlannedAction(("backward", 0), 50, 70)), 100)


def train(forecast: BubbleForecast, iteration: int, starts_ns: Sequence[int], wanted_ns: Sequence[int] = ()) -> None:
    """A forward of 10 ns and a backward of 20."""
    kinds = [(("forward", 0), 10), (("backward", 0), 20)]
    for place, ((key, length_ns), start_ns) in enumerate(zip(kinds, starts_ns, strict=False)):
        if wanted_ns:
            forecast.training_wanted(wanted_ns[place])
        forecast.training_started(start_ns, iteration, key)
        forecast.training_ended(start_ns + length_ns, iteration, key)


def test_before_anything_has_happened_nothing_is_forecast() -> None:
    forecast = BubbleForecast(SETTINGS, PLAN)
    assert forecast.bubble_end(5) == 5
    assert forecast.bubbles(0, 1000) == []
    assert forecast.report(7) is None


def test_a_plan_holds_from_the_first_action_on() -> None:
    forecast = BubbleForecast(SETTINGS, PLAN)
    train(forecast, 0, [1000])
    assert forecast.margin_ns == 3
    assert forecast.bubble_end(1010) == 1050 - 3
    assert forecast.report(7) == BubbleReport(7, 1000, 100, 3, ((10, 47), (70, 97)))
    assert forecast.longest_bubble_ns == 37


def test_after_the_last_action_the_next_iteration_is_a_period_away() -> None:
    forecast = BubbleForecast(SETTINGS, PLAN)
    train(forecast, 0, [1000, 1055])
    assert forecast.bubble_end(1075) == 1100 - 3


def test_the_first_iterations_may_be_watched_only() -> None:
    forecast = BubbleForecast(PrefillSettings(slo_ns=1, warmup_iterations=2), PLAN)
    train(forecast, 0, [0, 50])
    train(forecast, 1, [100, 150])
    assert forecast.bubble_end(120) == 120
    train(forecast, 2, [200])
    assert forecast.report(0) is not None


@pytest.mark.parametrize("unlike", [[500, 400], [500, 30], [20, 400]])
def test_first_iterations_like_no_other_do_not_widen_the_margin(unlike: list[int]) -> None:
    settings = PrefillSettings(slo_ns=1, switch_ns=2, guard_ns=1, warmup_iterations=5, window=8)
    forecast = BubbleForecast(settings)
    train(forecast, 0, [0, unlike[0]])
    train(forecast, 1, [700, 700 + unlike[1]])
    train(forecast, 2, [1200, 1250])
    train(forecast, 3, [1300, 1348])
    train(forecast, 4, [1400, 1451])
    train(forecast, 5, [1500])
    assert forecast.margin_ns == 3 + 2
    assert forecast.report(7) == BubbleReport(7, 1500, 100, 5, ((10, 45), (70, 95)))


def test_without_a_plan_the_first_iteration_is_one() -> None:
    forecast = BubbleForecast(SETTINGS)
    train(forecast, 0, [1000, 1050])
    assert forecast.bubble_end(1080) == 1080
    train(forecast, 1, [1100])
    assert forecast.report(7) == BubbleReport(7, 1100, 100, 3, ((10, 47), (70, 97)))


def test_what_the_last_iterations_showed_corrects_the_plan_by_its_median() -> None:
    forecast = BubbleForecast(SETTINGS, PLAN)
    train(forecast, 0, [0, 58])
    train(forecast, 1, [110, 110 + 60])
    train(forecast, 2, [220, 220 + 90])
    train(forecast, 3, [330])
    assert forecast.bubble_end(340) == 330 + 60 - forecast.margin_ns
    assert forecast.margin_ns == 3, "nothing came early"
    train(forecast, 3, [330, 330 + 60])
    assert forecast.bubble_end(330 + 80) == 330 + 110 - forecast.margin_ns


def test_the_forecast_keeps_an_iterations_lead_and_not_its_delay() -> None:
    forecast = BubbleForecast(SETTINGS, PLAN)
    train(forecast, 0, [0, 50])
    train(forecast, 1, [100, 150])
    forecast.training_started(200, 2, ("forward", 0))
    forecast.training_ended(210, 2, ("forward", 0))
    margin_ns = forecast.margin_ns
    forecast.training_started(243, 2, ("backward", 0))
    forecast.training_ended(253, 2, ("backward", 0))
    assert forecast.bubble_end(255) == 300 - 7 - margin_ns
    forecast.training_started(300, 3, ("forward", 0))
    forecast.training_ended(310, 3, ("forward", 0))
    forecast.training_started(356, 3, ("backward", 0))
    forecast.training_ended(366, 3, ("backward", 0))
    assert forecast.bubble_end(367) == 400 - forecast.margin_ns


def test_early_actions_widen_the_margin_until_they_leave_the_window() -> None:
    forecast = BubbleForecast(SETTINGS, PLAN)
    train(forecast, 0, [0, 50])
    train(forecast, 1, [100, 138])
    margins = []
    for iteration in range(2, 7):
        train(forecast, iteration, [100 * iteration, 100 * iteration + 50])
        margins.append(forecast.margin_ns)
    assert margins == [12 + 3, 12 + 3, 12 + 3, 3, 3]


def test_the_margin_is_the_configured_quantile() -> None:
    forecast = BubbleForecast(PrefillSettings(slo_ns=1, switch_ns=0, early_quantile=0.5, window=3), PLAN)
    train(forecast, 0, [0, 50])
    train(forecast, 1, [100, 140])
    train(forecast, 2, [200])
    assert forecast.margin_ns == 0, "three of four came in time: an early backward of two, and two anchors in time"


def test_an_action_that_had_to_wait_counts_from_when_it_wanted_the_gpu() -> None:
    """Otherwise the delay of one iteration would enter the prediction of the next one, and grow."""
    forecast = BubbleForecast(SETTINGS, PLAN)
    for iteration in range(4):
        base_ns = 100 * iteration
        train(forecast, iteration, [base_ns + 4, base_ns + 59], [base_ns, base_ns + 50])
    train(forecast, 4, [404], [400])
    assert forecast.bubble_end(420) == 450 - 3


def test_an_action_out_of_order_leaves_the_bubble_closed_until_those_before_it_have_come() -> None:
    forecast = BubbleForecast(SETTINGS, PLAN)
    train(forecast, 0, [0, 50])
    forecast.training_started(100, 1, ("backward", 0))
    forecast.training_ended(120, 1, ("backward", 0))
    assert forecast.bubble_end(130) == 130


def test_bubbles_are_forecast_for_any_number_of_iterations_and_clipped() -> None:
    forecast = BubbleForecast(SETTINGS, PLAN)
    train(forecast, 0, [1000, 1050])
    assert forecast.bubbles(1080, 1220) == [(1080, 1097), (1110, 1147), (1170, 1197), (1210, 1220)]


def test_bubbles_shorter_than_the_margin_are_none() -> None:
    plan = IterationPlan((PlannedAction(("forward", 0), 0, 10), PlannedAction(("forward", 1), 13, 90)), 100)
    forecast = BubbleForecast(SETTINGS, plan)
    train(forecast, 0, [0])
    assert forecast.bubbles(0, 100) == [(90, 97)]


def test_once_training_is_over_the_bubble_has_no_end() -> None:
    forecast = BubbleForecast(SETTINGS, PLAN)
    train(forecast, 0, [0, 50])
    forecast.training_over()
    assert forecast.bubble_end(80) == ENDLESS_NS
    assert forecast.bubbles(80, 200) == [(80, 200)]
    assert forecast.report(1) == BubbleReport(1, 0, 0, 0, ())


@pytest.mark.parametrize(
    ("field", "value"),
    [("slo_ns", 0), ("window", 0), ("switch_ns", -1), ("early_quantile", 1.1), ("hold_limit", -1), ("chunk_tokens", 0)],
)
def test_settings_that_cannot_be_are_refused_by_field(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        PrefillSettings(**{"slo_ns": 1, field: value})  # type: ignore[arg-type]


def test_a_transfer_takes_its_latency_and_its_bytes_rounded_up() -> None:
    own = PrefillSettings(slo_ns=1, transfer_latency_ns=100, transfer_rate_bps=3 * 10**9)
    assert own.transfer_ns(0) == 100
    assert own.transfer_ns(1) == 103


def test_an_action_that_varies_more_than_others_has_a_margin_of_its_own() -> None:
    settings = PrefillSettings(slo_ns=1, switch_ns=2, guard_ns=1, warmup_iterations=0, early_quantile=0.5, window=3)
    forecast = BubbleForecast(settings, PLAN)
    for iteration, backward_ns in enumerate([50, 50, 42, 50]):
        train(forecast, iteration, [100 * iteration, 100 * iteration + backward_ns])
    forecast.training_started(400, 4, ("forward", 0))
    forecast.training_ended(410, 4, ("forward", 0))
    assert forecast.margin_ns == 3
    assert forecast.next_margin_ns == forecast.margin_before(("backward", 0)) == 3 + 8
    assert forecast.bubble_end(415) == 450 - 11
    assert forecast.bubbles(400, 500) == [(410, 439), (470, 497)]


FORWARD, BACKWARD = Action(ActionKind.FORWARD, 0), Action(ActionKind.BACKWARD, 0)


def test_two_pipelines_take_turns_and_each_gpu_counts_from_its_own_first_action() -> None:
    cell = CellCosts(PipelineShape(2, 1), 2, (10, 10), (20, 20), (0, 0), (BoundaryCosts(5, 40, shared=True),))
    both = ((FORWARD, BACKWARD), (FORWARD, BACKWARD))
    planned = planned_iterations(CellPlan((both, both), (((1, 0), (0, 0)),), (((1, 0), (0, 0)),), 0, 0), cell, 7)
    forward, backward = ("forward", 0), ("backward", 0)
    # Pipeline 1's activation arrives at 55, pipeline 0's at 95; their gradients are made at 85 and 125.
    own = PlannedAction(forward, 0, 10), PlannedAction(backward, 10, 30)
    assert planned[1, 1] == IterationPlan(own, 170 + 20 + 7)
    assert planned[1, 0].actions == (PlannedAction(forward, 0, 10), PlannedAction(backward, 130, 150))
    assert planned[0, 0].actions == (PlannedAction(forward, 0, 10), PlannedAction(backward, 170, 190))


@given(cells(least_ns=1))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_plan_is_no_longer_than_was_planned_and_no_gpu_does_two_things_at_once(cell: CellCosts) -> None:
    plan = plan_cell(cell)
    for (pipeline, stage), iteration in planned_iterations(plan, cell, 0).items():
        keys = [(action.kind.value, action.microbatch) for action in plan.orders[pipeline][stage]]
        assert [action.key for action in iteration.actions] == keys
        assert iteration.period_ns <= plan.makespan_ns
        assert iteration.actions[0].start_ns == 0
        for before, after in zip(iteration.actions, iteration.actions[1:], strict=False):
            assert before.end_ns <= after.start_ns


def test_a_plan_that_waits_for_itself_is_refused() -> None:
    cell = CellCosts(PipelineShape(2, 1), 1, (1, 1), (1, 1), (0, 0), (BoundaryCosts(0, 0, shared=False),))
    with pytest.raises(ValueError, match="do not come to an end"):
        planned_iterations(CellPlan((((BACKWARD, FORWARD), (FORWARD, BACKWARD)),), ((),), ((),), 0, 0), cell, 0)


def test_the_bubble_after_a_send_that_blocks_begins_with_it() -> None:
    cell = CellCosts(
        PipelineShape(2, 2), 1, (10, 10), (20, 20), (0, 0), (BoundaryCosts(5, 40, shared=False),), sends_block=True
    )
    later = Action(ActionKind.FORWARD, 1), Action(ActionKind.BACKWARD, 1)
    orders = (FORWARD, later[0], BACKWARD, later[1])
    planned = planned_iterations(CellPlan(((orders, orders),), ((),), ((),), 0, 0), cell, 0)
    assert [action.start_ns for action in planned[0, 0].actions] == [0, 50, 180, 240]


def test_where_sends_block_a_gpu_goes_on_only_once_its_turn_on_a_shared_boundary_has_passed() -> None:
    boundary = BoundaryCosts(5, 40, shared=True)
    cell = CellCosts(PipelineShape(2, 2), 2, (10, 10), (20, 20), (0, 0), (boundary,), sends_block=True)
    order = (FORWARD, Action(ActionKind.FORWARD, 1), BACKWARD, Action(ActionKind.BACKWARD, 1))
    turns = ((1, 0), (0, 0), (1, 1), (0, 1))
    planned = planned_iterations(CellPlan(((order, order), (order, order)), (turns,), (turns,), 0, 0), cell, 0)
    # Both have made their first activation at 10; pipeline 1's leaves at 50, pipeline 0's after it at 90.
    assert planned[1, 0].actions[1] == PlannedAction(("forward", 1), 50, 60)
    assert planned[0, 0].actions[1] == PlannedAction(("forward", 1), 90, 100)
