"""ZB-2p reaches the makespans published for it, and on small pipelines the best that any order gives."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.pipelining import schedules as torch_schedules

from tests.support.workloads.optimal_cell import OptimalCell
from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts
from wanbed.workloads.schedules.planning.ordered_cell import OrderedCell
from wanbed.workloads.schedules.planning.plan_run import PlanRun
from wanbed.workloads.schedules.planning.zero_bubble_2p import ZeroBubble2p
from wanbed.workloads.schedules.zero_bubble import ZeroBubble

FORWARD, RECOMPUTE = ActionKind.FORWARD, ActionKind.RECOMPUTE
INPUT, WEIGHT = ActionKind.BACKWARD_INPUT, ActionKind.BACKWARD_WEIGHT


def costs(
    stages: int, microbatches: int, latency: int, *, bound: int | None = None, occupancy: int = 0, recompute: int = 0
) -> CellCosts:
    """Forwards of 50 and backwards of 50 + 50 at each stage; by default as many microbatches held as ZB-2p may."""
    return CellCosts(
        PipelineShape(stages, microbatches, recompute > 0, 2 * stages if bound is None else bound),
        1,
        (50,) * stages,
        (100,) * stages,
        (recompute,) * stages,
        (BoundaryCosts(latency, occupancy, shared=False),) * (stages - 1),
    )


def zb_h1_ns(cell: CellCosts) -> int:
    schedule = ZeroBubble(cell.shape)
    orders = tuple(tuple(action.kind for action in schedule.order(stage)) for stage in range(cell.shape.stages))
    alone = OrderedCell(cell)
    run = alone.run(alone.alike(orders))
    assert run is not None
    return run.makespan_ns


@pytest.mark.parametrize(
    ("stages", "microbatches", "latency", "published", "planned"),
    [(4, 8, 150, 2050, 2050), (6, 16, 50, 2950, 2950), (8, 32, 40, 5800, 5460)],
)
def test_published_makespans_are_reached(
    stages: int, microbatches: int, latency: int, published: int, planned: int
) -> None:
    assert ZeroBubble2p.plan(costs(stages, microbatches, latency)).makespan_ns == planned <= published


def test_without_latency_the_only_bubble_is_the_way_to_the_last_stage() -> None:
    assert ZeroBubble2p.plan(costs(4, 8, 0)).makespan_ns == 3 * 50 + 8 * 150


PAPERS_SETTINGS = [
    (24, (18_522, 18_086, 9_337), 601),
    (32, (18_513, 18_086, 9_331), 626),
    (64, (18_546, 18_097, 9_321), 762),
    (24, (29_718, 29_444, 19_927), 527),
]
"""Four of the zero-bubble paper with 8 stages: microbatches, times of F, B and W, and latency, in microseconds."""


def papers_cell(microbatches: int, times: tuple[int, int, int], latency: int, held: int) -> CellCosts:
    forward, backward_input, backward_weight = ((each,) * 8 for each in times)
    return CellCosts(
        PipelineShape(8, microbatches, memory_bound=held),
        1,
        forward,
        (0,) * 8,
        (0,) * 8,
        (BoundaryCosts(latency, 0, shared=False),) * 7,
        backward_input_ns=backward_input,
        backward_weight_ns=backward_weight,
    )


@pytest.mark.parametrize(
    ("setting", "held", "papers_own"),
    [
        *zip(PAPERS_SETTINGS, [16] * 4, [1_227_295, 1_594_752, 3_069_050, 2_020_743], strict=True),
        *zip(PAPERS_SETTINGS, [24] * 4, [1_152_599, 1_520_104, 2_994_482, 1_903_596], strict=True),
    ],
)
def test_with_equal_memory_no_period_is_longer_than_that_of_the_papers_own_program(
    setting: tuple[int, tuple[int, int, int], int], held: int, papers_own: int
) -> None:
    """Its program ran apart, told that a microbatch is held whole until its weight part has ended, as here."""
    assert ZeroBubble2p.plan(papers_cell(*setting, held)).period_ns <= papers_own


@pytest.mark.parametrize(("microbatches", "times", "latency"), PAPERS_SETTINGS)
def test_with_twice_the_stages_held_no_order_has_a_shorter_period(
    microbatches: int, times: tuple[int, int, int], latency: int
) -> None:
    """When the last stage's last gradient leaves, 16 weight parts at most are not done there.

    The way of that gradient to the first stage, and of the first microbatch from there, are the rest of an iteration.
    """
    forward, gradient, weight = times
    there_and_back = 7 * (forward + gradient + 2 * latency)
    least = microbatches * (forward + gradient) + (microbatches - 16) * weight + there_and_back + weight
    assert ZeroBubble2p.plan(papers_cell(microbatches, times, latency, 16)).period_ns == least


def test_of_plans_that_last_as_long_alone_the_shorter_period_is_taken() -> None:
    cell = costs(4, 8, 0)
    plan = ZeroBubble2p.plan(cell)
    assert (plan.makespan_ns, plan.period_ns) == (3 * 50 + 8 * 150, 8 * 150)
    waiting = replace(cell, between_ns=(0, 0, 0, 70))
    # The last stage waits for its sum: then no other stage can be the longest.
    assert ZeroBubble2p.plan(waiting).period_ns == 8 * 150 + 70


@pytest.mark.parametrize("bound", [4, 6, 8])
def test_more_memory_is_never_slower_and_none_is_exceeded(bound: int) -> None:
    cell = costs(4, 16, 100, bound=bound)
    plan = ZeroBubble2p.plan(cell)
    assert plan.makespan_ns <= ZeroBubble2p.plan(costs(4, 16, 100, bound=bound - 1)).makespan_ns
    assert plan.makespan_ns <= zb_h1_ns(cell)
    for order in plan.orders[0]:
        held = most = 0
        for action in order:
            held += (action.kind is FORWARD) - (action.kind is WEIGHT)
            most = max(most, held)
        assert most <= bound


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 4), (4, 8), (4, 16), (8, 16)])
@pytest.mark.parametrize("latency", [0, 40, 200])
def test_no_plan_is_longer_than_the_order_that_torch_runs(stages: int, microbatches: int, latency: int) -> None:
    class Stage(torch_schedules._PipelineStageBase):
        def __init__(self) -> None:
            self.stage_index = self.group_rank = 0
            self.group_size = self.num_stages = stages
            self.has_backward, self.group, self.submod = True, None, None

        _prepare_forward_infra = _prepare_backward_infra = _create_grad_recv_info = lambda *_: None
        backward_one_chunk = forward_one_chunk = lambda *_: None

    torch_schedule = torch_schedules.ScheduleInterleavedZeroBubble([Stage()], microbatches, loss_fn=lambda *_: 0)
    letters = {"F": FORWARD, "I": INPUT, "W": WEIGHT}
    texts = (
        [str(action).lstrip("0123456789") for action in torch_schedule.pipeline_order[rank] if action]
        for rank in range(stages)
    )
    orders = tuple(tuple(letters[text[0]] for text in own if text[0] in letters) for own in texts)
    cell = costs(stages, microbatches, latency)
    pipeline = OrderedCell(cell)
    torchs = pipeline.run(pipeline.alike(orders))
    assert torchs is not None
    assert ZeroBubble2p.plan(cell).makespan_ns <= torchs.makespan_ns


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([(1, 3), (2, 2), (2, 3), (3, 2)]),
    st.lists(st.tuples(*[st.integers(1, 6)] * 3), min_size=3, max_size=3),
    st.lists(st.sampled_from([0, 1, 3, 5, 10]), min_size=2, max_size=2),
    st.integers(1, 3),
)
def test_a_small_pipeline_is_planned_within_a_tenth_of_the_best_of_all_orders(
    size: tuple[int, int], times: list[tuple[int, int, int]], latencies: list[int], bound: int
) -> None:
    stages, microbatches = size
    forward, inputs, weights = zip(*times[:stages], strict=True)
    cell = CellCosts(
        PipelineShape(stages, microbatches, memory_bound=bound),
        1,
        forward,
        tuple(one + other for one, other in zip(inputs, weights, strict=True)),
        (0,) * stages,
        tuple(BoundaryCosts(latency, 0, shared=False) for latency in latencies[: stages - 1]),
        backward_input_ns=inputs,
        backward_weight_ns=weights,
    )
    shortest, planned = OptimalCell(cell, splits=True).makespan().most_ns, ZeroBubble2p.plan(cell).makespan_ns
    assert shortest <= planned <= 1.1 * shortest


def test_plans_of_uniform_small_pipelines_are_the_best_there_are() -> None:
    for latency in (0, 25, 50, 100, 150):
        for size in ((2, 2), (2, 3), (3, 2)):
            cell = costs(*size, latency)
            assert ZeroBubble2p.plan(cell).makespan_ns == OptimalCell(cell, splits=True).makespan().most_ns


def test_a_recompute_fills_the_time_until_its_gradient_and_the_last_stage_keeps_its_activations() -> None:
    # Without it, gradients are back after 50 + 200 + 50 + 50 + 200 ns: time enough to recompute all forwards.
    plan = ZeroBubble2p.plan(costs(2, 1, 200, recompute=50))
    assert plan.makespan_ns == ZeroBubble2p.plan(costs(2, 1, 200)).makespan_ns
    ((first, last),) = plan.orders
    assert ActionKind.RECOMPUTE in {action.kind for action in first}
    assert ActionKind.RECOMPUTE not in {action.kind for action in last}


def test_pipelines_of_a_cell_take_turns_by_microbatch() -> None:
    cell = CellCosts(
        PipelineShape(2, 3, memory_bound=4), 2, (50, 50), (100, 100), (0, 0), (BoundaryCosts(10, 30, shared=True),)
    )
    plan = ZeroBubble2p.plan(cell)
    assert plan.activation_turns == plan.gradient_turns == (((0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)),)
    times = PlanRun(plan, cell).iterate()
    assert max(end for own in times.values() for _, end in own) == plan.makespan_ns


def test_zb_2p_takes_no_options() -> None:
    with pytest.raises(ValueError, match="turns: zb-2p has no options"):
        ZeroBubble2p.plan(costs(2, 2, 0), turns="starving")
