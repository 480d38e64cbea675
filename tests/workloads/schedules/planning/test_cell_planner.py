"""What holds for a plan of any cell, and stays true when nothing takes as long as was planned."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.workloads.restarting_links import Restarting
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.atlas import Atlas
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts
from wanbed.workloads.schedules.planning.cell_planner import _wanted, plan_cell
from wanbed.workloads.schedules.planning.zero_bubble_2p import ZeroBubble2p


@st.composite
def cells(draw: st.DrawFn, least_ns: int = 0) -> CellCosts:
    stages, microbatches = draw(st.integers(1, 6)), draw(st.integers(1, 10))
    recompute = draw(st.one_of(st.booleans(), st.tuples(*[st.booleans()] * stages)))
    bound = draw(st.one_of(st.none(), st.tuples(*[st.integers(1, 10)] * stages)))
    times = st.tuples(*[st.integers(least_ns, 60)] * stages)
    boundary = st.builds(BoundaryCosts, st.integers(0, 150), st.integers(least_ns, 80), st.booleans())
    return CellCosts(
        PipelineShape(stages, microbatches, recompute, bound),
        draw(st.integers(1, 4)),
        draw(times),
        draw(times),
        draw(times),
        draw(st.tuples(*[boundary] * (stages - 1))),
        sends_block=draw(st.booleans()),
    )


def recomputed_ahead(order: Sequence[Action]) -> int:
    """How many microbatches, at most, were recomputed and not yet gone backward."""
    most = now = 0
    for action in order:
        now += (action.kind is ActionKind.RECOMPUTE) - (action.kind is ActionKind.BACKWARD)
        most = max(most, now)
    return most


@given(cell=cells(), chance=st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_plan_never_deadlocks_whatever_the_durations(cell, chance, run_cell) -> None:
    plan = plan_cell(cell)
    schedules = [Atlas.of_plan(cell.shape, plan, pipeline) for pipeline in range(cell.pipelines)]
    runs = run_cell(
        schedules,
        lambda *_: chance.randint(0, 100),
        plan,
        latency=lambda *_: chance.randint(0, 300),
        occupancy=lambda *_: chance.randint(0, 200),
        shared=[boundary.shared for boundary in cell.boundaries],
        sends_block=cell.sends_block,
    )
    for schedule, run in zip(schedules, runs, strict=True):
        for stage in range(cell.shape.stages):
            assert schedule.complete(stage), "deadlock"
            assert run.deepest[stage] <= cell.shape.most_in_flight(stage)


@given(cell=cells())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_planned_durations_give_the_planned_makespan(cell, run_plan) -> None:
    plan = plan_cell(cell)
    assert max(run.end for run in run_plan(cell, plan)) == plan.makespan_ns


@given(cell=cells(least_ns=1))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_plan_is_no_longer_than_varuna_over_the_same_links(cell, varuna_ns) -> None:
    assert plan_cell(cell).makespan_ns <= varuna_ns(cell)


@given(
    cell=cells(least_ns=1), links=st.one_of(st.none(), st.builds(Restarting, st.integers(0, 200), st.integers(1, 400)))
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_plan_that_may_split_has_no_longer_period_than_published_atlas_and_zb_2p(cell, links) -> None:
    cell = replace(cell, boundaries=tuple(replace(boundary, links=links) for boundary in cell.boundaries))
    shape = cell.shape
    if shape.memory_bound is None:
        shape = replace(shape, memory_bound=ZeroBubble2p.default_memory_bound(shape.stages))
    others = Atlas.plan(cell, split="never"), ZeroBubble2p.plan(replace(cell, shape=shape))
    assert Atlas.plan(cell).period_ns <= min(plan.period_ns for plan in others)


@given(cell=cells())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_only_transfers_over_shared_boundaries_have_turns(cell) -> None:
    plan = plan_cell(cell)
    every = [(p, m) for p in range(cell.pipelines) for m in range(cell.shape.microbatches)]
    for turns in (plan.activation_turns, plan.gradient_turns):
        assert [sorted(order) for order in turns] == [every if boundary.shared else [] for boundary in cell.boundaries]


@given(cell=cells())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_one_microbatch_at_most_is_recomputed_ahead_and_none_at_the_last_stage(cell) -> None:
    for stages in plan_cell(cell).orders:
        for stage, order in enumerate(stages):
            if cell.shape.recomputes(stage):
                assert recomputed_ahead(order) <= 1
        assert all(action.kind is not ActionKind.RECOMPUTE for action in stages[-1])


@given(cell=cells())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_same_cell_has_the_same_plan(cell) -> None:
    plan = plan_cell(cell)
    plan_cell.cache_clear()
    _wanted.cache_clear()
    assert plan_cell(cell) == plan
