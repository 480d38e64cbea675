"""Divide trunks among the machines that send into them: each machine gets an equal part, in every state of a trunk."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from testbed.network.gateway_plan import PortState, SharedRate, WanPort
from testbed.network.links.link_conditions import LinkConditions
from testbed.network.shared_rate import bytes_per_s, can_bind
from testbed.network.topology import Topology


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
        states = tuple(self._own_state(state, conditions, pairs) for conditions, state in self._states(port))
        course = None if port.course is None else replace(port.course, states=states)
        return replace(port.holding(states[0]), course=course)

    def _states(self, port: WanPort) -> list[tuple[LinkConditions, PortState]]:
        """Return each of the conditions that the link ever has, the first first, with the port's state then."""
        states = (PortState(port.netem, port.trunk),) if port.course is None else port.course.states
        return list(zip(self.topology.ever(self.source, port.peer), states, strict=True))

    def _part_bps(self, conditions: LinkConditions) -> int:
        assert conditions.rate_bps is not None
        return max(1, conditions.rate_bps // self.machines)

    def _own_state(self, state: PortState, conditions: LinkConditions, pairs: int) -> PortState:
        if state.trunk is None:
            # All node pairs of all machines together cannot exceed it.
            return state
        part_bps = self._part_bps(conditions)
        rates = [rate for rate in (bytes_per_s(part_bps), state.netem.rate_bytes_per_s) if rate is not None]
        trunk = self.shared(part_bps) if can_bind(part_bps, [conditions.pair_rate_bps] * pairs) else None
        return PortState(replace(state.netem, rate_bytes_per_s=min(rates)), trunk)
