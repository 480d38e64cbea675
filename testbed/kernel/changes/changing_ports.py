"""Change WAN ports in place, and compare what the kernel then holds with what was asked."""

import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache

from wanbed.testbed.kernel.changes.netlink_batch import EncodedRequests, NetlinkBatch
from wanbed.testbed.kernel.changes.port_change import HeldPort, change_requests
from wanbed.testbed.kernel.netlink_dump import NetlinkDump
from wanbed.testbed.kernel.qdiscs.port_shape import PortShape, wan_port_shape
from wanbed.testbed.kernel.qdiscs.read_back_error import ReadBackError
from wanbed.testbed.kernel.qdiscs.statistics import RTM_GETQDISC, RTM_GETTCLASS, request_body
from wanbed.testbed.network.gateway_plan import Gateway, GatewayPlan, PortCourse, PortState, WanPort

_PREPARED = 256
"""States whose requests are kept encoded."""


class ChangingPort:
    """A port that is shaped already and changes. ``index`` is that of its interface in the gateway's namespace.

    If only some of the sources send through it, ``senders``, only their node pairs have leaves.
    """

    def __init__(
        self,
        gateway: Gateway,
        port: WanPort,
        course: PortCourse,
        *,
        index: int,
        batch: NetlinkBatch,
        dump: NetlinkDump,
        senders: Collection[str] | None = None,
    ) -> None:
        self.source, self.destination = gateway.datacenter, port.peer
        self.course = course
        self._gateway, self._port, self._senders = gateway, port, senders
        self._sets_ceilings = any(state.pair is not None for state in course.states)
        self._index = index
        self._batch, self._dump = batch, dump
        self._held = HeldPort()
        self._prepared = lru_cache(_PREPARED)(self._prepare)

    def prepare(self, state: PortState) -> None:
        """Do beforehand what ``put`` needs for a state."""
        self._prepared(state)

    def put(self, state: PortState) -> None:
        """Give the port a state; it has it when this returns. Raise ReadBackError if the kernel refuses."""
        try:
            self._batch.send(self._prepared(state)[1])
        except OSError as refused:
            raise ReadBackError(f"{self.source} to {self.destination}: configured {state}: {refused}") from None

    def check(self, state: PortState) -> None:
        """Raise ReadBackError unless the kernel holds that state."""
        shape, _ = self._prepared(state)
        try:
            leaves = self._held.leaves(self._index, self._dump.ask(RTM_GETQDISC, request_body(0)))
            classes = self._dump.ask(RTM_GETTCLASS, request_body(self._index))
            trunk, ceilings = self._held.trunk(self._index, classes), self._held.ceilings(self._index, classes)
        except (LookupError, OSError) as fault:
            raise ReadBackError(f"{self.source} to {self.destination}: configured {state}: {fault}") from None
        configured = {each.minor: each.netem for each in shape.classes if each.netem is not None}
        if trunk != shape.trunk or leaves != configured:
            wrong = {minor: leaf for minor, leaf in leaves.items() if leaf != configured.get(minor)}
            raise ReadBackError(
                f"{self.source} to {self.destination}: configured {state}, the kernel holds the trunk {trunk} "
                f"and other leaves in {len(wrong)} of {len(configured)} classes: {list(wrong.values())[:1]}"
            )
        if ceilings != {each.minor: each.ceiling for each in shape.classes}:
            raise ReadBackError(
                f"{self.source} to {self.destination}: configured {state}, the kernel holds other rates of node pairs: "
                f"{sorted({*ceilings.values()}, key=str)}"
            )

    def _prepare(self, state: PortState) -> tuple[PortShape, EncodedRequests]:
        shape = wan_port_shape(self._gateway, self._port.holding(state), self._senders)
        return shape, self._batch.encode(change_requests(self._index, shape, ceilings=self._sets_ceilings))


class ChangingPorts:
    """Every port of a plan that changes; ``namespaces`` has the path of each gateway's namespace, by datacenter.

    ``index_of`` returns the index of a port's interface, ``senders`` are those of ``ChangingPort``. Close it: its
    sockets keep the namespaces alive.
    """

    def __init__(
        self,
        plan: GatewayPlan,
        namespaces: Mapping[str, str],
        index_of: Callable[[Gateway, WanPort], int],
        senders: Collection[str] | None = None,
    ) -> None:
        self.ports: list[ChangingPort] = []
        self._sockets: list[NetlinkBatch | NetlinkDump] = []
        for gateway in plan.gateways:
            changing = [(port, port.course) for port in gateway.wan_ports if port.course is not None]
            if changing:
                namespace = namespaces[gateway.datacenter]
                batch, dump = NetlinkBatch(namespace), NetlinkDump(namespace, socket.NETLINK_ROUTE)
                self._sockets += [batch, dump]
                self.ports += [
                    ChangingPort(
                        gateway, port, course, index=index_of(gateway, port), batch=batch, dump=dump, senders=senders
                    )
                    for port, course in changing
                ]

    def close(self) -> None:
        """Close the sockets."""
        for each in self._sockets:
            each.close()

    def hold(self, time_ns: int) -> None:
        """Put every port in its state at a time since training began. Raise ReadBackError if one has another then."""
        put_all((port, port.course.at(time_ns)) for port in self.ports)


def put_all(states: Iterable[tuple[ChangingPort, PortState]]) -> None:
    """Give each port its state, and then compare each with what the kernel holds."""
    given = list(states)
    for port, state in given:
        port.put(state)
    for port, state in given:
        port.check(state)
