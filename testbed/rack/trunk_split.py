"""Divide trunks among the machines that send into them: each machine gets an equal part, in every state of a trunk."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from wanbed.testbed.network.gateway_plan import PortState, SharedRate, WanPort
from wanbed.testbed.network.links.wan_link import LinkConditions
from wanbed.testbed.network.pair_rates import pair_rates
from wanbed.testbed.network.shared_rate import Timers, can_bind
from wanbed.testbed.network.topology import Topology


@dataclass(frozen=True)
class TrunkSplit:
    """A trunk that is divided among ``machines`` machines, of which each has ``rate_bps``.

    Of a trunk that changes, that is the part in its first conditions under which node pairs can exceed it.
    """

    source: str
    destination: str
    machines: int
    rate_bps: int


@dataclass(frozen=True)
class TrunkDivision:
    """The trunks from ``source``, whose hosts are on so many ``machines``. ``shared`` plans a trunk of a rate."""

    topology: Topology
    source: str
    machines: int
    timers: Timers
    shared: Callable[[int], SharedRate]

    def splits(self, ports: Iterable[WanPort]) -> tuple[TrunkSplit, ...]:
        """Return how each trunk is divided, but for those that never bind, and of a single machine."""
        return tuple(
            TrunkSplit(self.source, port.peer, self.machines, parts_bps[0])
            for port in ports
            if self.machines > 1 and (parts_bps := [each for _, _, each in self._states(port) if each is not None])
        )

    def own_part(self, port: WanPort, hosts: int) -> WanPort:
        """Return the port with the part of one machine that carries ``hosts`` of the sending hosts."""
        if self.machines == 1:
            return port
        pairs = hosts * len(port.destinations)
        ever = self._states(port)
        # A node pair cannot be above its machine's part of a trunk that can bind.
        own_bps = [min(filter(None, (pair_bps, part_bps)), default=None) for _, pair_bps, part_bps in ever]
        rates = pair_rates(own_bps, self.timers, self.shared)
        states = tuple(
            PortState(
                replace(state.netem, rate_bytes_per_s=rates.leaf_bytes_per_s),
                self.shared(part_bps) if part_bps and can_bind(part_bps, [pair_bps] * pairs) else None,
                above,
            )
            for (state, pair_bps, part_bps), above in zip(ever, rates.above, strict=True)
        )
        course = None if port.course is None else replace(port.course, states=states)
        return replace(port.holding(states[0]), course=course)

    def _states(self, port: WanPort) -> list[tuple[PortState, int | None, int | None]]:
        """Return each state that the port ever has, the first first, with the rate of a node pair and that of a part.

        A part is one machine's of the trunk. Its rate is None while the trunk does not bind.
        """
        states = (PortState(port.netem, port.trunk, port.pair),) if port.course is None else port.course.states
        ever = zip(states, self.topology.ever(self.source, port.peer), strict=True)
        return [(state, each.pair_rate_bps, self._part_bps(state, each)) for state, each in ever]

    def _part_bps(self, state: PortState, conditions: LinkConditions) -> int | None:
        if state.trunk is None or conditions.rate_bps is None:
            return None
        return max(1, conditions.rate_bps // self.machines)
