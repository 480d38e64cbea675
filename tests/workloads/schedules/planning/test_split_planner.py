"""The orders that rules give, decision by decision."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts
from wanbed.workloads.schedules.planning.split_planner import SplitRules, SplitSimulation

LETTERS = {
    ActionKind.FORWARD: "F",
    ActionKind.RECOMPUTE: "R",
    ActionKind.BACKWARD_INPUT: "B",
    ActionKind.BACKWARD_WEIGHT: "W",
}


def orders(costs: CellCosts, rules: SplitRules) -> list[str]:
    return ["".join(LETTERS[kind] for kind in order) for order in SplitSimulation(costs, rules).run()]


def two_stages(microbatches: int, link: BoundaryCosts, *, recompute: bool = False, blocks: bool = False) -> CellCosts:
    """Every part of a microbatch takes 50 ns."""
    shape = PipelineShape(2, microbatches, recompute, memory_bound=8)
    return CellCosts(shape, 1, (50, 50), (100, 100), (50, 50), (link,), sends_block=blocks)


@given(
    st.integers(2, 4),
    st.integers(1, 6),
    st.integers(2, 4),
    st.tuples(st.integers(0, 200), st.integers(0, 100)),
    st.builds(SplitRules, st.integers(0, 2), st.integers(0, 2), st.booleans()),
)
def test_on_shared_links_each_transfer_waits_for_the_turns_of_all_pipelines(
    stages: int, microbatches: int, pipelines: int, link_ns: tuple[int, int], rules: SplitRules
) -> None:
    latency_ns, occupancy_ns = link_ns
    cell = CellCosts(
        PipelineShape(stages, microbatches, memory_bound=2 * stages),
        pipelines,
        (50,) * stages,
        (100,) * stages,
        (0,) * stages,
        (BoundaryCosts(latency_ns, occupancy_ns, shared=True),) * (stages - 1),
    )
    alone = BoundaryCosts(latency_ns, pipelines * occupancy_ns, shared=False)
    assert orders(cell, rules) == orders(replace(cell, pipelines=1, boundaries=(alone,) * (stages - 1)), rules)


def test_a_send_that_blocks_leaves_no_time_for_a_weight_part_before_the_next_forward() -> None:
    link = BoundaryCosts(0, 200, shared=False)
    assert orders(two_stages(2, link), SplitRules())[1] == "FBWFBW"
    # The gradient is sent until 550 ns; the next activation has been there since 500.
    assert orders(two_stages(2, link, blocks=True), SplitRules())[1] == "FBFBWW"


def test_a_recompute_that_ends_as_its_gradient_arrives_goes_before_a_forward() -> None:
    # The first gradient arrives at 270 ns: the stage, free at 250, would be late after another forward.
    first, _ = orders(two_stages(8, BoundaryCosts(35, 0, shared=False), recompute=True), SplitRules())
    assert first.startswith("FFFFFRB")
