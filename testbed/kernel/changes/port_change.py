"""Encode what changes a shaped port in place, and decode what the kernel then holds.

A port has as many leaves as node pairs, all alike. So their options are encoded, and decoded, once: a general netlink
library takes a millisecond for each.
"""

import struct
from collections.abc import Callable, Iterator

from pyroute2.netlink.rtnl import RTM_NEWQDISC, RTM_NEWTCLASS
from pyroute2.netlink.rtnl.tcmsg import sched_htb, tcmsg

from wanbed.testbed.kernel.netlink_dump import split_attributes
from wanbed.testbed.kernel.qdiscs import netem
from wanbed.testbed.kernel.qdiscs.apply import ceiling, class_parameters, trunk_parameters, trunk_rate
from wanbed.testbed.kernel.qdiscs.node_pair_classifier import HTB_MAJOR
from wanbed.testbed.kernel.qdiscs.port_shape import TRUNK_CLASS, PortShape
from wanbed.testbed.network.gateway_plan import NetemPlan, SharedRate

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
                encoded[each.netem] = _attributes("netem", netem.netem_options(each.netem))
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
                self._leaves[stripped] = netem.read_back(_message("netem", stripped))
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
