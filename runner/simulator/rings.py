"""The rings over which the replicas of each stage sum their gradients."""

from collections.abc import Sequence
from copy import deepcopy

from runner.simulator.channel import PrivateChannel
from runner.simulator.network import Ends, Network
from runner.simulator.ring_all_reduce import all_reduce_ends_ns
from runner.simulator.wan_traffic import Crossing


class Rings:
    """One ring a stage, of all replicas, over channels that carry nothing else.

    Where fewer replicas are simulated than there are, these stand for the others by their position.
    """

    def __init__(self, network: Network) -> None:
        self._variant = variant = network.variant
        self.any = variant.pipelines > 1 and any(variant.work.gradient_bytes)
        self._rings = [_Ring(network, stage) for stage in range(variant.placement.stages if self.any else 0)]

    def reduce(self, stage: int, starts_ns: Sequence[int]) -> list[int]:
        """When each simulated replica of a stage has the sum, given when it was ready."""
        return self._rings[stage].reduce(starts_ns, self._variant.work.gradient_bytes[stage])

    def crossed(self) -> list[Crossing]:
        """The channels over the WAN that have carried something, each with its ends."""
        return [crossing for ring in self._rings for crossing in ring.crossed()]


class _Ring:
    """The ring of one stage.

    Where lines and starts repeat after some positions, so does all that happens, and only so many are looked at: a
    large ring of equal replicas costs no more than its steps. One that crosses the WAN is looked at as a whole, since
    what crossed is asked for.
    """

    def __init__(self, network: Network, stage: int) -> None:
        ring = network.variant.placement.ring(stage)
        self._network = network
        self._order = [place.pipeline for place in ring]
        self._pairs: list[Ends] = list(zip(ring, [*ring[1:], ring[0]], strict=True))
        self._lines = [network.line(pair) for pair in self._pairs]
        self._crosses_wan = any(one.datacenter != other.datacenter for one, other in self._pairs)
        self._channels: list[PrivateChannel] = []

    def reduce(self, starts_ns: Sequence[int], size_bytes: int) -> list[int]:
        simulated = len(starts_ns)
        ready = [starts_ns[pipeline % simulated] for pipeline in self._order]
        period = self._period(ready)
        self._grow(period)
        ends_ns = all_reduce_ends_ns(ready[:period], self._channels[:period], size_bytes, len(ready))
        ends = {pipeline: ends_ns[position % period] for position, pipeline in enumerate(self._order)}
        return [ends[pipeline] for pipeline in range(simulated)]

    def crossed(self) -> list[Crossing]:
        return [
            (pair, channel)
            for pair, channel in zip(self._pairs, self._channels, strict=False)
            if pair[0].datacenter != pair[1].datacenter and channel.history
        ]

    def _period(self, ready_ns: Sequence[int]) -> int:
        """After how many positions everything repeats, a multiple of what it was before."""
        replicas, before = len(ready_ns), len(self._channels) or 1
        if self._crosses_wan:
            return replicas
        alike = [*zip(ready_ns, self._lines, strict=True)]
        return next(
            period
            for period in range(before, replicas + 1, before)
            if replicas % period == 0 and alike[period:] == alike[:-period]
        )

    def _grow(self, period: int) -> None:
        """Give each of the first ``period`` positions a channel of its own, in the state of the one it was like."""
        if not self._channels:
            pairs = self._pairs[:period]
            self._channels = [PrivateChannel(self._network.line(pair), self._network.window(pair)) for pair in pairs]
        before = list(self._channels)
        while len(self._channels) < period:
            self._channels += deepcopy(before)
