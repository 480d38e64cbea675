"""Change WAN ports in place while packets are in them, and compare what the kernel then holds with what was asked.

A port has as many leaves as node pairs, all alike. So their options are encoded, and decoded, once: a general netlink
library takes a millisecond for each. All changes of a moment go to the kernel in one system call.
"""

import os
import socket
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from pyroute2.netlink.rtnl import RTM_NEWQDISC, RTM_NEWTCLASS
from pyroute2.netlink.rtnl.tcmsg import sched_htb, tcmsg

from wanbed.testbed.kernel.link_counters import RTM_GETQDISC, RTM_GETTCLASS, request_body
from wanbed.testbed.kernel.namespace import inside
from wanbed.testbed.kernel.netlink_dump import NetlinkDump, split_attributes, split_messages
from wanbed.testbed.kernel.node_pair_classifier import HTB_MAJOR
from wanbed.testbed.kernel.port_shape import TRUNK_CLASS, PortShape, wan_port_shape
from wanbed.testbed.kernel.qdiscs import (
    ReadBackError,
    ceiling,
    class_parameters,
    netem_options,
    read_back,
    trunk_parameters,
    trunk_rate,
)
from wanbed.testbed.network.gateway_plan import (
    Gateway,
    GatewayPlan,
    NetemPlan,
    PortCourse,
    PortState,
    SharedRate,
    WanPort,
)

_HEADER = struct.Struct("=IHHII")
_ERROR = struct.Struct("=i")
_NLM_F_REQUEST, _NLM_F_ACK = 0x1, 0x4
_NLMSG_ERROR = 2
_BATCH_BYTES = 128 * 1024
"""The most bytes for one system call, within the default limit of a socket's buffer."""
_RECEIVE_BYTES = 64 * 1024


class _EncodedRequests(NamedTuple):
    """Requests as they are sent: what goes with each system call, all under one sequence number."""

    sequence: int
    batches: tuple[bytes, ...]


class NetlinkBatch:
    """A socket for routing requests inside a namespace. Close it: an open socket keeps the namespace alive."""

    def __init__(self, namespace: str) -> None:
        with inside(namespace):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.bind((0, 0))
        self._sequence = 0

    def close(self) -> None:
        """Close the socket, which releases the namespace."""
        self._socket.close()

    def make(self, requests: Iterable[tuple[int, bytes]]) -> None:
        """Make all changes, each a kind of message and its body, in order. They are made when this returns.

        Raise OSError with the kernel's error number if it refuses one; the others are made all the same.
        """
        self.send(self.encode(requests))

    def encode(self, requests: Iterable[tuple[int, bytes]]) -> _EncodedRequests:
        """Do beforehand all that ``send`` need not do in time. What is encoded may be sent several times."""
        self._sequence += 1
        batches: list[list[tuple[int, bytes]]] = []
        left_bytes = 0
        for request in requests:
            if left_bytes <= 0:
                batches.append([])
                left_bytes = _BATCH_BYTES
            batches[-1].append(request)
            left_bytes -= _HEADER.size + len(request[1])
        return _EncodedRequests(self._sequence, tuple(_encoded(batch, self._sequence) for batch in batches))

    def send(self, encoded: _EncodedRequests) -> None:
        """Make changes that were encoded. They are made when this returns; raise OSError like ``make``."""
        for batch in encoded.batches:
            self._socket.send(batch)
            refused, last = 0, False
            while not last:
                for kind, payload in split_messages(self._socket.recv(_RECEIVE_BYTES), encoded.sequence):
                    if kind == _NLMSG_ERROR:
                        error, answered = self._answer(payload)
                        refused = refused or error
                        last = answered
            if refused:
                raise OSError(refused, f"changing a port: {os.strerror(refused)}")

    @staticmethod
    def _answer(payload: memoryview) -> tuple[int, bool]:
        """Return the error number, 0 for none, and whether the request answered asked for an answer: the last one."""
        flags = _HEADER.unpack_from(payload, _ERROR.size)[2]
        return -_ERROR.unpack_from(payload)[0], bool(flags & _NLM_F_ACK)


def _encoded(batch: Sequence[tuple[int, bytes]], sequence: int) -> bytes:
    messages = bytearray()
    for number, (kind, body) in enumerate(batch, start=1):
        # The kernel answers refused requests, and of the others only those that ask for it.
        flags = _NLM_F_REQUEST | (_NLM_F_ACK if number == len(batch) else 0)
        messages += _HEADER.pack(_HEADER.size + len(body), kind, flags, sequence, 0)
        messages += body
    return bytes(messages)


_TCMSG = struct.Struct("=BxxxiIII")
_ATTRIBUTE = struct.Struct("=HH")
_HEADER_BYTES = 16
_MAJOR = HTB_MAJOR << 16
_TCA_KIND, _TCA_OPTIONS = 1, 2
_QOPT_BYTES = 24
_TCA_NETEM_PRNG_SEED = 14
"""Newer kernels tell the seed of each leaf's random numbers, which nobody has configured."""


def change_requests(index: int, shape: PortShape, *, ceilings: bool) -> list[tuple[int, bytes]]:
    """Return the requests that give the interface of that index the trunk and the leaves of ``shape``, all attributes.

    With ``ceilings`` they also set the classes above the leaves. The interface must have the same classes already.
    """
    trunk = sched_htb.get_class_parameters(trunk_parameters(shape))
    requests = [
        (RTM_NEWTCLASS, _request(index, _MAJOR | TRUNK_CLASS, _MAJOR, _attributes("htb", trunk))),
    ]
    encoded: dict[NetemPlan, bytes] = {}
    encoded_rates: dict[tuple[int, SharedRate], bytes] = {}
    for each in shape.classes:
        if ceilings:
            rates = each.guaranteed_bytes_per_s, each.ceiling
            if rates not in encoded_rates:
                encoded_rates[rates] = _attributes("htb", sched_htb.get_class_parameters(class_parameters(shape, each)))
            body = _request(index, _MAJOR | each.minor, _MAJOR | TRUNK_CLASS, encoded_rates[rates])
            requests.append((RTM_NEWTCLASS, body))
        if each.netem is not None:
            if each.netem not in encoded:
                encoded[each.netem] = _attributes("netem", netem_options(each.netem))
            body = _request(index, each.minor << 16, _MAJOR | each.minor, encoded[each.netem])
            requests.append((RTM_NEWQDISC, body))
    return requests


def _request(index: int, handle: int, parent: int, attributes: bytes) -> bytes:
    return _TCMSG.pack(0, index, handle, parent, 0) + attributes


def _attributes(kind: str, options: object) -> bytes:
    message = tcmsg()
    message["attrs"] = [("TCA_KIND", kind), ("TCA_OPTIONS", options)]
    message.encode()
    return bytes(message.data[_HEADER_BYTES + _TCMSG.size :])


class HeldPort:
    """Decode dumps of a port's qdiscs and classes; equal options are decoded once."""

    def __init__(self) -> None:
        self._leaves: dict[bytes, NetemPlan] = {}
        self._ceilings: dict[bytes, SharedRate] = {}

    def leaves(self, index: int, qdiscs: list[memoryview]) -> dict[int, NetemPlan]:
        """Return the netem leaves of the interface by the minor number of their class."""
        found = {}
        for parent, options in _options(qdiscs, index, "netem", lambda handle, parent: parent):
            stripped = _without_seed(options)
            if stripped not in self._leaves:
                self._leaves[stripped] = read_back(_message("netem", stripped))
            found[parent] = self._leaves[stripped]
        return found

    def ceilings(self, index: int, classes: list[memoryview]) -> dict[int, SharedRate]:
        """Return the ceilings of the interface's classes below its trunk by their minor numbers."""
        found = {}
        for minor, options in _options(classes, index, "htb", lambda handle, parent: handle):
            if minor != TRUNK_CLASS:
                held = bytes(options)
                if held not in self._ceilings:
                    self._ceilings[held] = ceiling(_message("htb", held))
                found[minor] = self._ceilings[held]
        return found

    @staticmethod
    def trunk(index: int, classes: list[memoryview]) -> SharedRate:
        """Return the trunk of the interface. Raise LookupError if it has none, or one whose ceiling is another."""
        for minor, options in _options(classes, index, "htb", lambda handle, parent: handle):
            if minor == TRUNK_CLASS:
                return trunk_rate(_message("htb", bytes(options)))
        raise LookupError("no HTB trunk class on this interface")


def _options(
    dump: list[memoryview], index: int, kind: str, number: Callable[[int, int], int]
) -> Iterator[tuple[int, memoryview]]:
    """Yield the options of everything of that kind on the interface, by the minor number of its handle or parent."""
    for payload in dump:
        _, interface, handle, parent, _ = _TCMSG.unpack_from(payload)
        if interface != index:
            continue
        attributes = dict(split_attributes(payload[_TCMSG.size :]))
        if bytes(attributes[_TCA_KIND]).rstrip(b"\0").decode() == kind:
            yield number(handle, parent) & 0xFFFF, attributes[_TCA_OPTIONS]


def _without_seed(options: memoryview) -> bytes:
    kept = bytearray(options[:_QOPT_BYTES])
    for kind, value in split_attributes(options[_QOPT_BYTES:]):
        if kind != _TCA_NETEM_PRNG_SEED:
            kept += _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)
    return bytes(kept)


def _message(kind: str, options: bytes) -> object:
    """Return a message with these options, decoded."""
    name = kind.encode() + b"\0"
    body = _TCMSG.pack(0, 0, 0, 0, 0)
    for attribute, value in ((_TCA_KIND, name), (_TCA_OPTIONS, options)):
        body += _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), attribute) + value + bytes(-len(value) % 4)
    message = tcmsg(struct.pack("=IHHII", _HEADER_BYTES + len(body), RTM_NEWQDISC, 0, 0, 0) + body)
    message.decode()
    return message


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

    def _prepare(self, state: PortState) -> tuple[PortShape, _EncodedRequests]:
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
        _put_all((port, port.course.at(time_ns)) for port in self.ports)


def _put_all(states: Iterable[tuple[ChangingPort, PortState]]) -> None:
    """Give each port its state, and then compare each with what the kernel holds."""
    given = list(states)
    for port, state in given:
        port.put(state)
    for port, state in given:
        port.check(state)
