from tests.support.runner.prefill_documents import point
from wanbed.runner.companions.prefill.resolution import OPTIMIZER, planned_bubbles

SHARED = {"connections": "auto", "sharing": "temporal"}


def test_the_optimizer_follows_the_actions_of_a_rank() -> None:
    of = point(variants=[{"name": "any", "schedule": "atlas", "transport": SHARED}])
    plans = planned_bubbles(of.topology, of.variants[0])
    assert sorted(plans) == list(range(8))
    for plan in plans.values():
        assert [action.key for action in plan.actions].count(OPTIMIZER) == 1
        assert plan.actions[-1].key == OPTIMIZER
        assert len(plan.actions) == 2 * 4 + 1
        assert plan.actions[-1].end_ns - plan.actions[-1].start_ns == 3_000_000
        assert plan.period_ns >= plan.actions[-1].end_ns


def test_an_unplanned_schedule_has_no_forecast() -> None:
    of = point()
    assert planned_bubbles(of.topology, of.variants[0]) == {}
