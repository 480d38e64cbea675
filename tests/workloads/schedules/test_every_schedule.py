"""What holds for every schedule that this package registers, whatever the shape, the durations and the links."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wanbed.workloads.schedules.gpipe import GPipe
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning import shortened_planner
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts
from wanbed.workloads.schedules.planning.planned_schedule import PlannedSchedule
from wanbed.workloads.schedules.schedule import Schedule, load_schedule
from wanbed.workloads.schedules.virtual.interleaved import InterleavedOneForwardOneBackward
from wanbed.workloads.schedules.virtual.zero_bubble_v import ZeroBubbleV

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
SCHEDULES: dict[str, str] = PROJECT["project"]["entry-points"]["wanbed.schedules"]


OPTIONS: dict[str, list[dict[str, object]]] = {
    "varuna": [{"recompute": "ahead"}, {"recompute": "on-gradient"}],
    "atlas": [{"split": "always"}, {"split": "auto"}],
}
"""What a schedule does by another rule has to hold as well."""
CASES = [(name, options) for name in sorted(SCHEDULES) for options in [{}, *OPTIONS.get(name, [])]]


@pytest.fixture(scope="module", autouse=True)
def quick_plans() -> Iterator[None]:
    """Make plans in little time: here they have to be right, and need not be short."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shortened_planner, "_SHORTENED_ACTIONS", 2_000)
        patch.setattr(shortened_planner, "_PRICED_ACTIONS", 1_000)
        yield


def test_the_schedules_of_the_method_are_registered() -> None:
    assert set(SCHEDULES) >= {
        "gpipe",
        "1f1b",
        "eager-1f1b",
        "varuna",
        "zb-h1",
        "dp",
        "atlas",
        "interleaved-1f1b",
        "zb-v",
        "zb-2p",
    }


@st.composite
def shapes(draw: st.DrawFn, schedule_class: type[Schedule]) -> PipelineShape:
    stages = 1 if schedule_class.whole_replicas else draw(st.integers(1, 6))
    microbatches = draw(st.integers(1, 10))
    recompute = draw(st.one_of(st.booleans(), st.tuples(*[st.booleans()] * stages)))
    if schedule_class is GPipe:
        return PipelineShape(stages, microbatches, recompute)
    if schedule_class is InterleavedOneForwardOneBackward:
        groups, chunks = draw(st.integers(1, 3)), draw(st.integers(2, 4))
        return PipelineShape(stages, stages * groups, recompute, virtual_stages=chunks)
    if schedule_class is ZeroBubbleV:
        return PipelineShape(stages, microbatches, recompute, virtual_stages=2)
    bound = draw(st.one_of(st.none(), st.integers(1, 12), st.tuples(*[st.integers(1, 12)] * stages)))
    return PipelineShape(stages, microbatches, recompute, bound)


@st.composite
def schedules(draw: st.DrawFn, schedule_class: type[Schedule], options: dict[str, object]) -> Schedule:
    shape = draw(shapes(schedule_class))
    if not issubclass(schedule_class, PlannedSchedule):
        return schedule_class(shape, **options)
    times = st.tuples(*[st.integers(0, 50)] * shape.stages)
    boundary = st.builds(BoundaryCosts, st.integers(0, 90), st.integers(0, 60), st.booleans())
    boundaries = draw(st.tuples(*[boundary] * (shape.stages - 1)))
    profile = CellCosts(shape, draw(st.integers(1, 3)), draw(times), draw(times), draw(times), boundaries)
    return schedule_class.of_plan(
        shape, schedule_class.plan(profile, **options), draw(st.integers(0, profile.pipelines - 1))
    )


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
@given(data=st.data())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_microbatch_goes_through_once_within_the_memory_bound_without_deadlock(
    data, name, options, run_pipeline
) -> None:
    schedule = data.draw(schedules(load_schedule(SCHEDULES[name]), options))
    chance = data.draw(st.randoms(use_true_random=False))
    run = run_pipeline(schedule, lambda *_: chance.randint(0, 100), lambda *_: chance.randint(0, 300))
    shape = schedule.shape
    for stage in range(shape.stages):
        assert schedule.complete(stage), "deadlock"
        kinds = schedule.kinds(stage)
        chunks, microbatches = range(shape.virtual_stages), range(shape.microbatches)
        done = [(action.chunk, action.microbatch, kinds.index(action.kind)) for action in run.actions[stage]]
        assert sorted(done) == [(c, m, step) for c in chunks for m in microbatches for step in range(len(kinds))]
        assert run.deepest[stage] <= shape.most_in_flight(stage) * shape.virtual_stages
