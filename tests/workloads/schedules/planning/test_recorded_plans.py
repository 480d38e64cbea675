"""A plan is as good as it was: who changes a period records it anew, as ``tests/support/recorded.py`` says."""

import random
from pathlib import Path

from tests.support.recorded import check_recorded
from wanbed.workloads.schedules.atlas import Atlas
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts
from wanbed.workloads.schedules.planning.zero_bubble_2p import ZeroBubble2p

RECORDED = Path(__file__).with_name("recorded_plans.txt")


def drawn(number: int) -> CellCosts:
    draw = random.Random(number)
    stages, pipelines = draw.randint(2, 5), draw.choice((1, 1, 2, 3))
    microbatches = draw.randint(2, 10)
    times = [[draw.randint(20, 90) for _ in range(stages)] for _ in range(4)]
    recomputes = draw.random() < 0.5
    boundaries = tuple(
        BoundaryCosts(
            draw.choice((0, 10, 60, 250)), draw.choice((0, 5, 40)), shared=pipelines > 1 and draw.random() < 0.6
        )
        for _ in range(stages - 1)
    )
    return CellCosts(
        PipelineShape(stages, microbatches, recomputes, draw.choice((None, 2, stages, 2 * stages))),
        pipelines,
        tuple(times[0]),
        tuple(one + other for one, other in zip(times[1], times[2], strict=True)),
        tuple(times[3]) if recomputes else (0,) * stages,
        boundaries,
        backward_input_ns=tuple(times[1]),
        backward_weight_ns=tuple(times[2]),
    )


def test_drawn_cells_have_the_periods_and_makespans_that_they_had() -> None:
    found = {}
    for number in range(60):
        cell = drawn(number)
        plans = {"Atlas": Atlas.plan(cell, split="never"), "split Atlas": Atlas.plan(cell)}
        for name, plan in {**plans, "ZeroBubble2p": ZeroBubble2p.plan(cell)}.items():
            found[f"{name} {number}"] = f"period {plan.period_ns}, makespan {plan.makespan_ns}"
    check_recorded(RECORDED, found)
