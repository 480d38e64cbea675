"""Small DP-cells drawn at random: unequal stages, recomputes, shared links, memory bounds."""

import random

from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts

_UNIT_NS = 10


def random_cell(number: int) -> CellCosts:
    """Return a cell of 2 to 4 stages. Memory is bounded where the number is even."""
    dice = random.Random(f"optimum {number}")
    capped = number % 2 == 0
    pipelines = dice.choice((1, 1, 2))
    stages = dice.randint(2, 4 if pipelines == 1 else 3)
    microbatches = dice.randint(4, 6 if pipelines == 1 else 4)
    alike = dice.random() < 0.4

    def each(least: int, most: int) -> tuple[int, ...]:
        one = dice.randint(least, most) * _UNIT_NS
        return tuple(one if alike else dice.randint(least, most) * _UNIT_NS for _ in range(stages))

    forwards, inputs, weights = each(2, 10), each(2, 12), each(1, 10)
    recomputes = dice.random() < 0.5
    boundaries = tuple(
        BoundaryCosts(
            dice.choice((0, 1, 5, 20)) * _UNIT_NS,
            dice.choice((0, 1, 4, 8)) * _UNIT_NS,
            shared=pipelines > 1 and dice.random() < 0.7,
        )
        for _ in range(stages - 1)
    )
    held = dice.choice((2, stages, stages + 1, stages + 2)) if capped else None
    return CellCosts(
        PipelineShape(stages, microbatches, recomputes, held).keeping_last(),
        pipelines,
        forwards,
        tuple(one + other for one, other in zip(inputs, weights, strict=True)),
        forwards if recomputes else (0,) * stages,
        boundaries,
        between_ns=each(0, 10) if dice.random() < 0.5 else (),
        backward_input_ns=inputs,
        backward_weight_ns=weights,
    )
