"""Check 1F1B's and GPipe's iteration times under latency alone, as published: every simulator must give these."""

from dataclasses import dataclass

from runner.simulator.simulation import Simulate
from runner.validation.case import chain, iteration_ns, simulated
from runner.validation.check import Check

MS = 1_000_000
FORWARD_NS, BACKWARD_NS = 50 * MS, 100 * MS


@dataclass(frozen=True)
class GoldenValue:
    """A golden value: ``stages`` stages of one GPU each, a forward 50 ms, a backward 100 ms.

    Links have latency and no rate.
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

Three independent public schedulers agree on 1F1B. GPipe follows ``(M + S - 1)(f + b) + 2(S - 1)c``: a full pipeline
once forward and once back, and each link once each way.
"""

GOLDEN_VALUES = tuple(
    GoldenValue(schedule, stages, microbatches, latency_ms * MS, times_ms[position] * MS)
    for position, schedule in enumerate(("1f1b", "gpipe"))
    for (stages, microbatches, latency_ms), times_ms in _ITERATION_MS.items()
)


def golden_check(value: GoldenValue, simulate: Simulate) -> Check:
    """Simulate one golden value."""
    simulation = simulated(
        simulate,
        chain([value.latency_ns] * (value.stages - 1)),
        compute={"forward": f"{FORWARD_NS}ns", "backward": f"{BACKWARD_NS}ns"},
        training={"stages": value.stages, "microbatches": value.microbatches},
        variant={"schedule": value.schedule},
    )
    return Check(
        f"{value.schedule}, S = {value.stages}, M = {value.microbatches}, c = {value.latency_ns // MS} ms",
        "(M + S - 1)(f + b) + 2(S - 1)c" if value.schedule == "gpipe" else "published",
        (value.iteration_ns,),
        (iteration_ns(simulation),),
    )
