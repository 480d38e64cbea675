"""The chains are never above the shortest of all schedules, and reach it where it has a closed form."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.workloads.optimal_cell import OptimalCell
from wanbed.runner.bound.pipeline_chains import BoundaryWay, Chain, ChainPart, Hop, PipelineChains, StageTimes
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts

SIZES = [(1, 4), (2, 3), (2, 4), (3, 3), (4, 2)]


@st.composite
def small_pipelines(draw: st.DrawFn) -> tuple[OptimalCell, PipelineChains]:
    (stages, microbatches), splits, recomputes = draw(st.sampled_from(SIZES)), draw(st.booleans()), draw(st.booleans())
    forward, recompute, inputs, weights = (draw(st.tuples(*[st.integers(0, 6)] * stages)) for _ in range(4))
    held = draw(st.tuples(*[st.integers(1, microbatches)] * stages))
    latencies, occupancies = (
        draw(st.lists(st.sampled_from(values), min_size=stages - 1, max_size=stages - 1))
        for values in ([0, 1, 5, 20], [0, 0, 3, 8])
    )
    both = list(zip(latencies, occupancies, strict=True))
    cell = CellCosts(
        PipelineShape(stages, microbatches, recomputes, held),
        1,
        forward,
        inputs,
        recompute,
        tuple(BoundaryCosts(*each, shared=False) for each in both),
        backward_input_ns=inputs,
        backward_weight_ns=weights,
    )
    times = [
        StageTimes(
            forward[stage],
            recompute[stage] if recomputes else 0,
            inputs[stage],
            weights[stage] if splits else 0,
            held[stage],
        )
        for stage in range(stages)
    ]
    ways = [BoundaryWay(*each, microbatches * each[1]) for each in both]
    return OptimalCell(cell, splits=splits), PipelineChains(times, [Hop(way, way) for way in ways], microbatches)


@settings(max_examples=150, deadline=None)
@given(small_pipelines())
def test_no_schedule_of_a_small_pipeline_is_shorter_than_its_longest_chain(
    both: tuple[OptimalCell, PipelineChains],
) -> None:
    optimal, chains = both
    assert max(chain.end_ns for chain in chains.ends()) <= optimal.makespan().most_ns


def longest(stages: int, microbatches: int, latency: int, held: int | None = None, weight: int = 0) -> Chain:
    times = StageTimes(50, 0, 100 - weight, weight, microbatches if held is None else held)
    hops = [Hop(BoundaryWay(latency), BoundaryWay(latency))] * (stages - 1)
    return max(PipelineChains([times] * stages, hops, microbatches).ends(), key=lambda chain: chain.end_ns)


def test_one_microbatch_goes_through_all_stages_and_back() -> None:
    assert longest(4, 1, 150).end_ns == 4 * 150 + 6 * 150


def test_a_stage_computes_all_microbatches_once_the_first_is_there() -> None:
    # The last of 4 stages is reached after 150 and computes for 1200; then the way back of the last gradient.
    assert longest(4, 8, 0)[:3] == (150 + 1200 + 300, ChainPart.GPU, 3)


def test_a_memory_bound_admits_so_many_microbatches_a_round_trip() -> None:
    # A microbatch is held for 150, the rest of the way of 450 of computation, and six latencies of 150.
    held_ns = 150 + 450 + 900
    assert longest(4, 8, 150, held=1)[:3] == (8 * held_ns, ChainPart.MEMORY, 0)
    assert longest(4, 8, 150, held=2)[:2] == (4 * held_ns + 50, ChainPart.MEMORY)


def test_weight_gradients_wait_until_the_gradient_is_on_its_way() -> None:
    # The first gradient is back after 1250. By then stage 0 has run 8 forwards, and 8 x (50 + 50) are left.
    assert longest(4, 8, 150, weight=50)[:2] == (2050, ChainPart.GPU)


def test_a_slow_boundary_carries_all_transfers_between_the_ends_of_the_way() -> None:
    times, way = StageTimes(10, 0, 20, 0, 8), BoundaryWay(5, 100, 800)
    ends = PipelineChains([times] * 2, [Hop(way, BoundaryWay(5, 1, 8))], 8).ends()
    assert ends[0] == Chain(10 + 800 + 5 + 10 + 20 + 6 + 20, ChainPart.LINK_THERE, 0, 800)


def test_what_a_transfer_waits_for_and_what_follows_it() -> None:
    stages = [StageTimes(10, 3, 20, 5, 8), StageTimes(11, 2, 21, 4, 8)]
    chains = PipelineChains(stages, [Hop(BoundaryWay(7, 1, 8), BoundaryWay(9, 2, 16))], 8)
    # A forward; then the way there, forward, recompute and gradient of the last stage.
    assert chains.sent_ns(0) == (10, 10 + 7 + 1 + 11 + 2 + 21)
    # After the last gradient of stage 0 come its weight gradient and what closes the iteration; after that of stage 1
    # its own, or the way back and all of that.
    for closing, from_first, from_last in (([100, 50], 105, 9 + 2 + 20 + 105), ([100, 500], 105, 504)):
        assert chains.after_sent_ns(0, closing) == (7 + 11 + 2 + 21 + from_last, 9 + 20 + from_first)


def test_a_slow_way_back_carries_all_gradients_between_the_ends_of_the_way() -> None:
    times, way = StageTimes(10, 0, 20, 0, 8), BoundaryWay(5, 100, 800)
    ends = PipelineChains([times] * 2, [Hop(BoundaryWay(5, 1, 8), way)], 8).ends()
    assert Chain(10 + 6 + 10 + 20 + 800 + 5 + 20, ChainPart.LINK_BACK, 0, 800) in ends
