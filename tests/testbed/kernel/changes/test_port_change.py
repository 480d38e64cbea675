"""Changes of a port, encoded for the kernel and decoded from dumps as it makes them."""

import struct
from dataclasses import replace
from typing import Any

import pytest
from pyroute2.netlink.rtnl import RTM_NEWQDISC, RTM_NEWTCLASS
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from wanbed.testbed.kernel.changes.port_change import HeldPort, change_requests
from wanbed.testbed.kernel.netlink_dump import split_attributes
from wanbed.testbed.kernel.qdiscs.port_shape import DEFAULT_CLASS, UNSHAPED, PortShape, wan_port_shape
from wanbed.testbed.network.gateway_layout import plan_gateways
from wanbed.testbed.network.links.link_conditions import LinkConditions
from wanbed.testbed.network.links.link_course import course_of
from wanbed.testbed.network.links.wan_link import WanLink
from wanbed.testbed.network.topology import Datacenter, Host, Topology

INDEX = 7
CONDITIONS = (
    LinkConditions(40_000_000, 10**10, 10**9),
    LinkConditions(5_000_000, 10**9),
    LinkConditions(5_000_000, 10**9, up=False),
    LinkConditions(5_000_000),
    LinkConditions(5_000_000, 5 * 10**11),
)
HOSTS = 3


def shapes(ever: tuple[LinkConditions, ...] = CONDITIONS) -> list[PortShape]:
    """The port's shape in each of the conditions."""
    datacenters = tuple(
        Datacenter(name, index, tuple(Host(f"{name}-{host}", name, host, 1) for host in range(HOSTS)))
        for index, name in enumerate(("east", "west"))
    )
    course = course_of((number * 10**9, conditions) for number, conditions in enumerate(ever))
    wan = (WanLink(("east", "west"), ever[0], courses=(course, course)),)
    (gateway, _) = plan_gateways(Topology(datacenters, 0, None, wan), 1).gateways
    (port,) = gateway.wan_ports
    assert port.course is not None
    return [wan_port_shape(gateway, port.holding(state)) for state in port.course.states]


def dumped(shape: PortShape, kind: int) -> list[memoryview]:
    """What was requested, as the kernel would dump it: without rate tables, and a seed with every leaf."""
    found = []
    for number, (request_kind, body) in enumerate(change_requests(INDEX, shape, ceilings=True)):
        if request_kind == kind:
            found.append(memoryview(_as_dumped(body, number)))
    return found


def _as_dumped(body: bytes, seed: int) -> bytes:
    attributes = dict(split_attributes(memoryview(body)[20:]))
    options, tables = bytearray(), {3, 4}
    if bytes(attributes[1]) == b"netem\0":
        options += bytes(attributes[2]) + struct.pack("=HHQ", 12, 14, seed)
    else:
        for number, value in split_attributes(attributes[2]):
            if number not in tables:
                options += struct.pack("=HH", 4 + len(value), number) + value
    kind = bytes(attributes[1])
    padded = kind + bytes(-len(kind) % 4)
    return body[:20] + struct.pack("=HH", 4 + len(kind), 1) + padded + struct.pack("=HH", 4 + len(options), 2) + options


def test_a_change_sets_the_trunk_once_and_every_leaf_with_the_ceiling_above_it_where_it_changes() -> None:
    leaves = HOSTS * HOSTS + 1
    for shape in shapes():
        plain = change_requests(INDEX, shape, ceilings=False)
        assert [kind for kind, _ in plain] == [RTM_NEWTCLASS, *[RTM_NEWQDISC] * leaves]
        requests = change_requests(INDEX, shape, ceilings=True)
        assert [kind for kind, _ in requests] == [RTM_NEWTCLASS, *[RTM_NEWTCLASS, RTM_NEWQDISC] * leaves]
        for _, body in requests:
            message: Any = tcmsg(struct.pack("=IHHII", 16 + len(body), 36, 0, 0, 0) + body)
            message.decode()
            assert message["index"] == INDEX


def test_what_is_set_is_read_back_whatever_the_conditions() -> None:
    held = HeldPort()
    for shape in shapes():
        leaves = {each.minor: each.netem for each in shape.classes}
        assert held.leaves(INDEX, dumped(shape, RTM_NEWQDISC)) == leaves
        classes = dumped(shape, RTM_NEWTCLASS)
        assert held.trunk(INDEX, classes) == shape.trunk
        assert held.ceilings(INDEX, classes) == {each.minor: each.ceiling for each in shape.classes}
        assert DEFAULT_CLASS in leaves


def test_one_leaf_that_is_not_as_the_others_is_told_apart() -> None:
    fast, slow, *_ = shapes()
    held, mixed = HeldPort(), dumped(slow, RTM_NEWQDISC)
    mixed[-1] = dumped(fast, RTM_NEWQDISC)[-1]
    found = held.leaves(INDEX, mixed)
    assert found != {each.minor: each.netem for each in slow.classes}
    assert found == {**{each.minor: each.netem for each in slow.classes}, max(found): fast.classes[-1].netem}


def test_other_interfaces_are_passed_over() -> None:
    (shape, *_) = shapes()
    assert HeldPort().leaves(INDEX + 1, dumped(shape, RTM_NEWQDISC)) == {}
    assert HeldPort().ceilings(INDEX + 1, dumped(shape, RTM_NEWTCLASS)) == {}
    with pytest.raises(LookupError, match="trunk"):
        HeldPort().trunk(INDEX + 1, dumped(shape, RTM_NEWTCLASS))


def test_only_the_ceilings_of_node_pairs_differ_between_conditions() -> None:
    found = shapes()
    classes = [[replace(each, netem=None, ceiling=UNSHAPED) for each in shape.classes] for shape in found]
    assert all(each == classes[0] for each in classes)
    assert {shape.quantum_bytes for shape in found} == {found[0].quantum_bytes}
    # Nine node pairs of 1 Gbit/s cannot exceed a trunk of 10 Gbit/s, and nothing an unlimited one.
    assert [shape.trunk == UNSHAPED for shape in found] == [True, False, False, True, False]
    rates = [{each.ceiling.rate_bytes_per_s for each in shape.classes} for shape in found]
    unlimited = UNSHAPED.rate_bytes_per_s
    assert rates == [{125_000_000}, {125_000_000}, {125_000_000}, {unlimited}, {62_500_000_000}]


def test_ceilings_are_fit_for_every_trunk_where_node_pairs_do_not_change() -> None:
    pair_bps = 10**9
    found = shapes((LinkConditions(0, 10**10, pair_bps), LinkConditions(0, 2 * 10**9, pair_bps)))
    assert [each.classes for each in found] == [found[0].classes] * 2
    for shape in found:
        assert all(each.ceiling.rate_bytes_per_s >= shape.trunk.rate_bytes_per_s for each in shape.classes)
