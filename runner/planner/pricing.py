"""Price a candidate by simulating a few iterations, those of the warm-up excluded."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from runner.planner.candidate import Candidate, Price, Pricing
from runner.planner.explanation.bottleneck import bottleneck_of
from runner.resolve.resolved_variant import ResolvedVariant
from runner.simulator.simulation import Simulation
from runner.simulator.training import Pulse
from runner.simulator.variant_simulation import simulate_variant
from runner.tcp.effects import TcpEffects
from testbed.network.topology import Topology

_MOST_ITERATIONS = 3


@dataclass(frozen=True)
class PricedIterations:
    """The number of iterations that are simulated for a price, and how many of them are warm-up."""

    iterations: int
    warmup: int

    @classmethod
    def of(cls, iterations: int, warmup: int) -> "PricedIterations":
        """Return the first few iterations of a training, because later iterations repeat them."""
        simulated = min(iterations, _MOST_ITERATIONS)
        return cls(simulated, min(warmup, simulated - 1))


def simulated_pricing(
    topology: Topology,
    resolve: Callable[[Candidate], ResolvedVariant],
    context: int,
    effects: TcpEffects,
    iterations: PricedIterations,
    *,
    pulse: Pulse | None = None,
    explained: bool = False,
) -> Pricing:
    """Return a pricing that simulates the variant to which ``resolve`` converts a candidate.

    ``context`` is the number of tokens in a sequence. ``pulse`` is told how far each simulation is, and may end it by
    raising. With ``explained``, prices have their bottlenecks.
    """

    def price(candidate: Candidate) -> Price:
        variant = resolve(candidate)
        simulation = simulate_variant(topology, variant, iterations.iterations, effects=effects, pulse=pulse)
        price = price_of(simulation, variant, context, iterations.warmup)
        if not explained:
            return price
        return replace(price, bottleneck=bottleneck_of(topology, variant, simulation, iterations.warmup))

    return price


def price_of(simulation: Simulation, variant: ResolvedVariant, context: int, warmup: int) -> Price:
    """Return the price of a simulated variant without the first ``warmup`` iterations.

    The time is the median of the other iterations, ``wan_bytes`` their mean. Utilization is that of the GPUs in use.
    """
    time_s = simulation.iteration_time_ns(warmup) / 1e9
    return Price(
        iteration_time_s=time_s,
        tokens_per_s=variant.sequences_per_iteration * context / time_s,
        gpu_utilization=simulation.utilization(len(variant.placement.places), warmup),
        wan_bytes=_wan_bytes(simulation, warmup),
    )


def _wan_bytes(simulation: Simulation, warmup: int) -> int:
    """Return the mean bytes over the WAN of an iteration, from the end of the warm-up to the end of the last one."""
    windows_ns = simulation.windows_ns
    begin_ns, end_ns = windows_ns[warmup - 1][1] if warmup else 0, windows_ns[-1][1]
    sent = 0.0
    for pair in simulation.traffic:
        before, after = np.interp([begin_ns, end_ns], pair.times_ns, pair.wire_bytes) if len(pair.times_ns) else (0, 0)
        sent += after - before
    return round(sent / (len(windows_ns) - warmup))
