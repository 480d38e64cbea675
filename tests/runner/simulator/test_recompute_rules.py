"""Varuna's two rules of when to recompute, simulated: two stages and two microbatches, computed by hand."""

import pytest

from wanbed.runner.simulator.simulation import KIND_CODES
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.runner.validation.case import chain, iteration_ns, simulated

MS = 1_000_000


@pytest.mark.parametrize(
    ("options", "recomputes_ms", "iteration_ms"),
    [
        ({}, [(100, 150), (380, 430)], 530),
        ({"recompute": "ahead"}, [(100, 150), (380, 430)], 530),
        ({"recompute": "on-gradient"}, [(280, 330), (430, 480)], 580),
    ],
    ids=str,
)
def test_stage_0_recomputes_in_the_gap_or_once_the_gradient_is_there(
    options: dict[str, str], recomputes_ms: list[tuple[int, int]], iteration_ms: int
) -> None:
    """A forward and a recompute take 50 ms, a backward 100, the way 40: gradients are there at 280 and 430 ms."""
    simulation = simulated(
        simulate_variant,
        chain([40 * MS]),
        compute={"forward": "50ms", "backward": "100ms", "recompute": "50ms"},
        training={"stages": 2, "microbatches": 2},
        variant={"schedule": "varuna", "options": options},
    )
    spans = simulation.spans
    recomputed = spans.kind == KIND_CODES["recompute"]
    times_ns = zip(spans.start_ns[recomputed].tolist(), spans.end_ns[recomputed].tolist(), strict=True)
    assert [(start_ns // MS, end_ns // MS) for start_ns, end_ns in times_ns] == recomputes_ms
    assert iteration_ns(simulation) == iteration_ms * MS
