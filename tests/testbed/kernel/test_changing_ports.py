"""Requests in batches, and changes of ports, with a kernel that answers as netlink says."""

import struct
from dataclasses import replace
from typing import Any

import pytest
from pyroute2.netlink.rtnl import RTM_NEWQDISC, RTM_NEWTCLASS
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from wanbed.testbed.kernel.changing_ports import HeldPort, NetlinkBatch, change_requests
from wanbed.testbed.kernel.netlink_dump import split_attributes
from wanbed.testbed.kernel.port_shape import DEFAULT_CLASS, UNSHAPED, PortShape, wan_port_shape
from wanbed.testbed.network.gateway_layout import plan_gateways
from wanbed.testbed.network.links.wan_link import LinkConditions, WanLink, course_of
from wanbed.testbed.network.topology import Datacenter, Host, Topology

HEADER = struct.Struct("=IHHII")
ACK, ERROR, EINVAL = 0x4, 2, 22


class Kernel:
    """Takes batches, and refuses requests with the body ``bad!``."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.sent: list[bytes] = []
        self._answers: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.sent.append(bytes(data))
        batch, offset, answers = [], 0, b""
        while offset < len(data):
            length, _, flags, sequence, _ = HEADER.unpack_from(data, offset)
            header, body = data[offset : offset + 16], bytes(data[offset + 16 : offset + length])
            refused = body[:4] == b"bad!"
            if refused or flags & ACK:
                answer = struct.pack("=i", -EINVAL if refused else 0) + header
                answers += HEADER.pack(16 + len(answer), ERROR, 0, sequence, 0) + answer
            batch.append(body)
            offset += length
        self.batches.append(batch)
        self._answers.append(answers)

    def recv(self, _: int) -> bytes:
        return self._answers.pop(0)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()

    def opened(batch: Any, _: str) -> None:
        batch._socket, batch._sequence = kernel, 0

    monkeypatch.setattr(NetlinkBatch, "__init__", opened)
    return kernel


def test_all_requests_go_in_one_batch_in_their_order(kernel: Kernel) -> None:
    NetlinkBatch("").make([(36, b"%04d" % number) for number in range(100)])
    assert kernel.batches == [[b"%04d" % number for number in range(100)]]


def test_what_does_not_fit_one_system_call_goes_in_several(kernel: Kernel) -> None:
    requests = [(36, bytes(4096)) for _ in range(100)]
    NetlinkBatch("").make(requests)
    assert sum(map(len, kernel.batches)) == 100
    assert len(kernel.batches) > 1
    assert all(sum(map(len, batch)) < 200_000 for batch in kernel.batches)


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_request_that_is_refused_is_reported_and_the_others_are_made(kernel: Kernel, position: int) -> None:
    bodies = [b"good", b"good", b"good"]
    bodies[position] = b"bad!"
    with pytest.raises(OSError, match="changing a port: Invalid argument"):
        NetlinkBatch("").make([(36, body) for body in bodies])
    assert kernel.batches == [bodies]


def test_nothing_to_change_is_no_request(kernel: Kernel) -> None:
    NetlinkBatch("").make([])
    assert kernel.batches == []


def test_what_is_encoded_beforehand_is_sent_byte_by_byte_as_often_as_wanted(kernel: Kernel) -> None:
    requests = [(36, b"%04d" % number) for number in range(3)]
    batch = NetlinkBatch("")
    encoded = batch.encode(requests)
    assert kernel.sent == []
    batch.send(encoded)
    batch.send(batch.encode([(40, b"else")]))
    batch.send(encoded)
    headers = [HEADER.pack(20, 36, 1 | (ACK if last else 0), 1, 0) for last in (False, False, True)]
    expected = b"".join(header + body for header, (_, body) in zip(headers, requests, strict=True))
    assert [kernel.sent[0], kernel.sent[2]] == [expected, expected]


def test_what_is_encoded_beforehand_is_what_would_be_made_at_once(kernel: Kernel) -> None:
    requests = [(36, bytes(4096)) for _ in range(100)]
    NetlinkBatch("").make(requests)
    at_once, kernel.sent = kernel.sent, []
    batch = NetlinkBatch("")
    batch.send(batch.encode(requests))
    assert kernel.sent == at_once


def test_an_encoded_request_that_is_refused_is_reported_each_time(kernel: Kernel) -> None:
    batch = NetlinkBatch("")
    encoded = batch.encode([(36, b"good"), (36, b"bad!")])
    for _ in range(2):
        with pytest.raises(OSError, match="changing a port: Invalid argument"):
            batch.send(encoded)
    assert len(kernel.sent) == 2


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
