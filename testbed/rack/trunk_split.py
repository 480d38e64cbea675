"""Divide trunks among the machines that send into them: each machine gets an equal part, in every state of a trunk."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from wanbed.testbed.network.gateway_plan import PortState, SharedRate, WanPort
from wanbed.testbed.network.links.link_conditions import LinkConditions
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
            TrunkSplit(self.source, port.peer, self.machines, self._part_bps(binding[0]))
            for port in ports
            if self.machines > 1 and (binding := [each for each, state in self._states(port) if state.trunk])
        )

    def own_part(self, port: WanPort, hosts: int) -> WanPort:
        """Return the port with the part of one machine that carries ``hosts`` of the sending hosts."""
        if self.machines == 1:
            return port
        pairs = hosts * len(port.destinations)
        ever = self._states(port)
        rates = pair_rates([self._own_pair_bps(*each) for each in ever], self.timers, self.shared)
        states = tuple(
            PortState(
                replace(state.netem, rate_bytes_per_s=rates.leaf_bytes_per_s),
                self._own_trunk(conditions, pairs) if state.trunk else None,
                above,
            )
            for (conditions, state), above in zip(ever, rates.above, strict=True)
        )
        course = None if port.course is None else replace(port.course, states=states)
        return replace(port.holding(states[0]), course=course)

    def _states(self, port: WanPort) -> list[tuple[LinkConditions, PortState]]:
        """Return each of the conditions that the link ever has, the first first, with the port's state then."""
        states = (PortState(port.netem, port.trunk, port.pair),) if port.course is None else port.course.states
        return list(zip(self.topology.ever(self.source, port.peer), states, strict=True))

    def _part_bps(self, conditions: LinkConditions) -> int:
        assert conditions.rate_bps is not None
        return max(1, conditions.rate_bps // self.machines)

    def _own_pair_bps(self, conditions: LinkConditions, state: PortState) -> int | None:
        """Return the rate of a node pair, which cannot be above its machine's part of a trunk that can bind."""
        pair_bps = conditions.pair_rate_bps
        return pair_bps if state.trunk is None or pair_bps is None else min(pair_bps, self._part_bps(conditions))

    def _own_trunk(self, conditions: LinkConditions, pairs: int) -> SharedRate | None:
        part_bps = self._part_bps(conditions)
        return self.shared(part_bps) if can_bind(part_bps, [conditions.pair_rate_bps] * pairs) else None
