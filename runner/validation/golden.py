"""Check the iteration times of 1F1B and GPipe under latency alone against published values."""

from dataclasses import dataclass

from wanbed.runner.simulator.simulation import Simulate
from wanbed.runner.validation.case import LawCheck, chain, iteration_ns, simulated

MS = 1_000_000
FORWARD_NS, BACKWARD_NS = 50 * MS, 100 * MS


@dataclass(frozen=True)
class GoldenValue:
    """A golden value for ``stages`` stages of one GPU each, with forwards of 50 ms and backwards of 100 ms.

    Links have a latency and no rate limit.
    """

    schedule: str
    stages: int
    microbatches: int
    latency_ns: int
    iteration_ns: int


_ITERATION_MS = {
    (2, 4, 50): (950, 850),
    (4, 8, 0): (1650, 1650),
    (4, 8, 10): (1810, 1710),
    (4, 8, 50): (2450, 1950),
    (4, 8, 150): (4050, 2550),
    (6, 8, 50): (2950, 2450),
}
"""Iteration times by (S, M, c in ms): 1F1B with ``S - s`` warm-up forwards at stage s, and GPipe.

Three independent public schedulers agree on 1F1B. GPipe follows ``(M + S - 1)(f + b) + 2(S - 1)c``: the pipeline fills
and drains once forward and once backward, and each link counts once in each direction.
"""

GOLDEN_VALUES = tuple(
    GoldenValue(schedule, stages, microbatches, latency_ms * MS, times_ms[position] * MS)
    for position, schedule in enumerate(("1f1b", "gpipe"))
    for (stages, microbatches, latency_ms), times_ms in _ITERATION_MS.items()
)


def golden_check(value: GoldenValue, simulate: Simulate) -> LawCheck:
    """Simulate the case of one golden value, and return the check."""
    simulation = simulated(
        simulate,
        chain([value.latency_ns] * (value.stages - 1)),
        compute={"forward": f"{FORWARD_NS}ns", "backward": f"{BACKWARD_NS}ns"},
        training={"stages": value.stages, "microbatches": value.microbatches},
        variant={"schedule": value.schedule},
    )
    return LawCheck(
        f"{value.schedule}, S = {value.stages}, M = {value.microbatches}, c = {value.latency_ns // MS} ms",
        "(M + S - 1)(f + b) + 2(S - 1)c" if value.schedule == "gpipe" else "published",
        (value.iteration_ns,),
        (iteration_ns(simulation),),
    )
