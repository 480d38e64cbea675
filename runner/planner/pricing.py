"""Price a candidate by simulating a few iterations, those of the warm-up excluded."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from wanbed.runner.planner.bottleneck import bottleneck_of
from wanbed.runner.planner.effort import Effort
from wanbed.runner.planner.search_space import Candidate, IterationCost, Price, Pricing
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.tcp_effects import TcpEffects
from wanbed.runner.simulator.simulation import Simulation
from wanbed.runner.simulator.training import Pulse
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.testbed.network.topology import Topology, as_begun

_FEWEST_ITERATIONS, _MOST_ITERATIONS = 2, 3


@dataclass(frozen=True)
class PricedIterations:
    """The number of iterations that are simulated for a price, and how many of them are warm-up: one at least.

    A price is for the period of training, which takes an iteration before the measured ones.
    """

    iterations: int
    warmup: int

    @classmethod
    def of(cls, iterations: int, warmup: int) -> "PricedIterations":
        """Return the first few iterations of a training, because later iterations repeat them."""
        simulated = max(_FEWEST_ITERATIONS, min(iterations, _MOST_ITERATIONS))
        return cls(simulated, max(1, min(warmup, simulated - 1)))


@dataclass(frozen=True)
class Pricer:
    """All that a price takes but the variant; it can be sent to another machine.

    ``context`` is the number of tokens in a sequence. With ``explained``, prices have their bottlenecks.
    """

    topology: Topology
    context: int
    effects: TcpEffects
    iterations: PricedIterations
    explained: bool = False

    def price(self, variant: PipelineVariant, pulse: Pulse | None = None) -> Price:
        """Simulate a variant and return its price. ``pulse`` is told how far it is, and may end it by raising."""
        # A plan is for the network as it is when training begins: how long it will run is not known. What is drawn
        # would make candidates differ by luck, and packets are too many to follow for each candidate.
        topology, effects = as_begun(self.topology), replace(self.effects, impairments=False, packets=False)
        simulation = simulate_variant(
            topology, variant, self.iterations.iterations, effects=effects, one_part=True, pulse=pulse
        )
        price = price_of(simulation, variant, self.context, self.iterations.warmup)
        if topology.prices is not None:
            sent_bytes = wan_bytes_by_link(topology, simulation)
            egress_usd = topology.prices.egress_usd(sent_bytes) / self.iterations.iterations
            price = replace(
                price,
                cost=IterationCost(topology.prices.gpus_usd_per_h(variant.placement.gpus_by_datacenter), egress_usd),
            )
        if not self.explained:
            return price
        return replace(price, bottleneck=bottleneck_of(topology, variant, simulation, self.iterations.warmup))


class AheadPricing(Protocol):
    """A pricing that simulates several candidates at a time."""

    def __call__(self, candidate: Candidate) -> Price:
        """Return the price of a candidate."""

    def expect(self, candidates: Iterator[Candidate]) -> None:
        """Begin to price these, as far as there is room, in place of those that were expected before.

        They are likely to be asked for next, in this order. What fails in one that is never asked for is no failure.
        """


Spread = Callable[[Pricer, Callable[[Candidate], PipelineVariant], Effort], AbstractContextManager[AheadPricing]]
"""Prices the candidates of one search, each once it is converted to a variant, within the limits of its effort."""


def simulated_pricing(
    topology: Topology,
    resolve: Callable[[Candidate], PipelineVariant],
    context: int,
    effects: TcpEffects,
    iterations: PricedIterations,
    *,
    pulse: Pulse | None = None,
    explained: bool = False,
) -> Pricing:
    """Return a pricing that simulates, in this process, the variant to which ``resolve`` converts a candidate.

    ``pulse`` is told how far each simulation is, and may end it by raising. The rest is as in ``Pricer``.
    """
    pricer = Pricer(topology, context, effects, iterations, explained)
    return lambda candidate: pricer.price(resolve(candidate), pulse)


def price_of(simulation: Simulation, variant: PipelineVariant, context: int, warmup: int) -> Price:
    """Return the price of a simulated variant without the first ``warmup`` iterations.

    The time is the period of the other iterations, ``wan_bytes`` their mean. Utilization is that of the GPUs in use.
    """
    time_s = simulation.iteration_time_ns(warmup) / 1e9
    return Price(
        iteration_time_s=time_s,
        tokens_per_s=variant.sequences_per_iteration * context / time_s,
        gpu_utilization=simulation.utilization(len(variant.placement.places) // simulation.parts, warmup),
        wan_bytes=wan_bytes_per_iteration(simulation, warmup),
    )


def wan_bytes_per_iteration(simulation: Simulation, warmup: int) -> int:
    """Return the mean bytes over the WAN of a measured iteration."""
    sent = 0.0
    for pair in simulation.traffic_of_part:
        before, after = pair.sent_by(np.array(simulation.measured_ns(warmup)))
        sent += after - before
    return round(simulation.parts * simulation.copies * sent / simulation.measured_iterations(warmup))


def wan_bytes_by_link(
    topology: Topology, simulation: Simulation, window_ns: tuple[int, int] | None = None
) -> Mapping[tuple[str, str], float]:
    """Return the bytes over each direction of a WAN link, headers included: of the whole simulation, or of a window."""
    home = {host.name: host.datacenter for host in topology.hosts}
    sent: dict[tuple[str, str], float] = defaultdict(float)
    for pair in simulation.traffic_of_part:
        before, after = pair.sent_by(np.array(window_ns or (-1, pair.last_ns)))
        sent[home[pair.source], home[pair.destination]] += simulation.parts * simulation.copies * float(after - before)
    return sent
