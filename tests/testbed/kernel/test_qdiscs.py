"""Shapes set and read back through netlink's own message encoding, with a table in the kernel's place."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroute2.iproute.linux import get_arguments_processor
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from wanbed.ground.impairments import IMPAIRMENTS, Impairments
from wanbed.ground.units import MAX_RATE_BPS
from wanbed.testbed.kernel.node_pair_classifier import node_pair_program
from wanbed.testbed.kernel.port_shape import (
    DEFAULT_CLASS,
    TRUNK_CLASS,
    UNSHAPED_BYTES_PER_S,
    PortShape,
    ShapedClass,
    host_port_shape,
    wan_port_shape,
)
from wanbed.testbed.kernel.qdiscs import (
    ENCODINGS,
    ORDER_KEEPING_RATE_BYTES_PER_S,
    apply_shape,
    change_netem,
    netem_options,
    read_back,
    read_shape,
)
from wanbed.testbed.network.gateway_layout import plan_gateways
from wanbed.testbed.network.gateway_plan import NetemPlan, SharedRate
from wanbed.testbed.network.links.wan_link import LinkConditions, WanLink
from wanbed.testbed.network.shared_rate import MIN_BYTES_PER_S, SUPER_PACKET_NS, Timers, bytes_per_s
from wanbed.testbed.network.topology import Datacenter, Host, Topology

INDEX = 7
NEVER_DUMPED = {"TCA_HTB_RTAB", "TCA_HTB_CTAB"}


class Kernel:
    """Keeps every message as its bytes, by what it sets, and dumps them as the kernel would."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self._kept: dict[tuple[str, int], bytes] = {}

    def tc(self, command: str, kind: str, index: int, handle: int = 0, **arguments: Any) -> None:
        assert index == INDEX
        query = {"kind": kind, "index": index, "handle": handle, **arguments}
        request = get_arguments_processor("tc", command, query)
        self._encoded(request, kind, request["options"])
        held = [entry for entry in request["options"]["attrs"] if entry[0] not in NEVER_DUMPED]
        verb, _, what = command.partition("-")
        key = (what or "qdisc", handle)
        assert (key in self._kept) == (verb == "change")
        self._kept[key] = self._encoded(request, kind, {**request["options"], "attrs": held})
        self.commands.append(f"{command} {kind}")

    @staticmethod
    def _encoded(request: Any, kind: str, options: dict[str, Any]) -> bytes:
        message = tcmsg()
        for name, _ in tcmsg.fields:
            message[name] = request.get_value(name, default=0, mode="field")
        message["attrs"] = [("TCA_KIND", kind), ("TCA_OPTIONS", options)]
        message.encode()
        return bytes(message.data)

    def _dump(self, what: str) -> list[Any]:
        found = []
        for (kept, _), data in self._kept.items():
            if kept == what:
                message = tcmsg(data)
                message.decode()
                found.append(message)
        return found

    def get_qdiscs(self, index: int) -> list[Any]:
        return self._dump("qdisc")

    def get_classes(self, index: int) -> list[Any]:
        return self._dump("class")

    def get_filters(self, index: int, parent: int) -> list[Any]:
        assert parent == 0x10000
        return self._dump("filter")


RATES = st.integers(MIN_BYTES_PER_S, UNSHAPED_BYTES_PER_S)
SHARED_RATES = st.builds(SharedRate, RATES, st.integers(1, 60 * 10**6))
NETEMS = st.builds(
    NetemPlan,
    delay_ns=st.integers(0, 10**13),
    limit_packets=st.integers(1, 2**32 - 1),
    rate_bytes_per_s=st.none() | st.integers(MIN_BYTES_PER_S, UNSHAPED_BYTES_PER_S - 1),
    impairments=st.builds(Impairments, st.integers(0, 10**13), st.floats(0, 1)).map(Impairments.rounded),
)
CLASSES = st.dictionaries(
    st.integers(DEFAULT_CLASS, 0xF433), st.tuples(RATES, SHARED_RATES, st.none() | NETEMS), min_size=1, max_size=6
).map(lambda found: tuple(ShapedClass(minor, *found[minor]) for minor in sorted(found)))
PROGRAMS = st.builds(node_pair_program, st.just("10.1.0.0"), st.integers(1, 250), st.just("10.1.1.0"), st.just(3))
# Encoding a class takes pyroute2 a millisecond.
FEW = settings(max_examples=20)
SHAPES = st.builds(PortShape, SHARED_RATES, CLASSES, PROGRAMS)


@FEW
@given(SHAPES)
def test_a_shape_reads_back_as_it_was_applied(shape: PortShape) -> None:
    kernel = Kernel()
    apply_shape(kernel, INDEX, shape)
    assert read_shape(kernel, INDEX) == shape


@FEW
@given(SHAPES, NETEMS)
def test_a_change_of_netem_leaves_rates_and_classifier_alone(shape: PortShape, netem: NetemPlan) -> None:
    kernel = Kernel()
    apply_shape(kernel, INDEX, shape)
    changed = tuple(
        ShapedClass(each.minor, each.guaranteed_bytes_per_s, each.ceiling, each.netem and netem)
        for each in shape.classes
    )
    before = len(kernel.commands)
    change_netem(kernel, INDEX, PortShape(shape.trunk, changed, shape.classifier))
    assert read_shape(kernel, INDEX) == PortShape(shape.trunk, changed, shape.classifier)
    assert set(kernel.commands[before:]) <= {"change netem"}


@pytest.mark.parametrize("timers", list(Timers))
@pytest.mark.parametrize("rate_bps", [1, 64, 10_000, 100_000, 34_400_000_000, 100_000_000_000, None])
def test_any_rate_reaches_the_kernel_even_shared_by_many_pairs(rate_bps: int | None, timers: Timers) -> None:
    datacenters = tuple(
        Datacenter(name, index, tuple(Host(f"{name}-{host}", name, host, 1) for host in range(4)))
        for index, name in enumerate(("east", "west"))
    )
    wan = (WanLink(("east", "west"), LinkConditions(40_000_000, rate_bps)),)
    plan = plan_gateways(Topology(datacenters, 50_000, rate_bps, wan), 1, timers)
    (gateway, _) = plan.gateways
    for shape in (wan_port_shape(gateway, gateway.wan_ports[0]), host_port_shape(gateway, gateway.host_ports[0])):
        kernel = Kernel()
        apply_shape(kernel, INDEX, shape)
        assert read_shape(kernel, INDEX) == shape


def test_a_burst_reaches_the_kernel_as_the_time_it_is_given() -> None:
    kernel = Kernel()
    shared = SharedRate(12_500_000, SUPER_PACKET_NS // 1000)
    classes = (ShapedClass(DEFAULT_CLASS, MIN_BYTES_PER_S, shared, None),)
    apply_shape(kernel, INDEX, PortShape(shared, classes, node_pair_program("10.1.0.0", 1, "10.1.1.0", 1)))
    tick_ns = 64
    for message in kernel.get_classes(INDEX):
        parameters = message.get_attr("TCA_OPTIONS").get_attr("TCA_HTB_PARMS")
        for bucket in ("buffer", "cbuffer"):
            assert SUPER_PACKET_NS - 2 * tick_ns <= parameters[bucket] * tick_ns <= SUPER_PACKET_NS


def test_one_filter_classifies_for_all_pairs() -> None:
    kernel = Kernel()
    classes = tuple(
        ShapedClass(minor, 100, SharedRate(1000, 10), None) for minor in (DEFAULT_CLASS, *range(0x10, 0x40))
    )
    apply_shape(
        kernel, INDEX, PortShape(SharedRate(1000, 10), classes, node_pair_program("10.1.0.0", 6, "10.1.1.0", 8))
    )
    assert kernel.commands.count("add-filter bpf") == 1
    assert kernel.commands.count("add-class htb") == len(classes) + 1


def test_an_interface_without_a_shape_is_distinguished() -> None:
    with pytest.raises(LookupError, match="trunk"):
        read_shape(Kernel(), INDEX)


def test_a_filter_that_is_missing_does_not_read_back_as_the_shape() -> None:
    kernel = Kernel()
    shape = PortShape(
        SharedRate(1000, 10),
        (ShapedClass(DEFAULT_CLASS, 100, SharedRate(1000, 10), None),),
        node_pair_program("10.1.0.0", 1, "10.1.1.0", 1),
    )
    apply_shape(kernel, INDEX, shape)
    without = PortShape(shape.trunk, shape.classes, b"")
    kernel.get_filters = lambda index, parent: []  # type: ignore[method-assign]
    assert read_shape(kernel, INDEX) == without != shape
    assert TRUNK_CLASS not in {each.minor for each in shape.classes}


PLANS = st.builds(
    NetemPlan,
    delay_ns=st.integers(0, 2**62),
    limit_packets=st.integers(1, 2**32 - 1),
    rate_bytes_per_s=st.none() | st.integers(MIN_BYTES_PER_S, ORDER_KEEPING_RATE_BYTES_PER_S - 1),
    impairments=st.builds(Impairments, st.integers(0, 2**62), st.floats(0, 1)).map(Impairments.rounded),
)
PLAN = NetemPlan(delay_ns=40_000_001, limit_packets=1000)


def over_netlink(plan: NetemPlan) -> Any:
    """The message that sets a plan, in the kernel's bytes, read as if the kernel had sent it."""
    sent = tcmsg()
    sent["index"] = 3
    sent["attrs"] = [("TCA_KIND", "netem"), ("TCA_OPTIONS", netem_options(plan))]
    sent.encode()
    received = tcmsg(sent.data)
    received.decode()
    return received


def kernel_options(plan: NetemPlan) -> Any:
    return over_netlink(plan).get_attr("TCA_OPTIONS")


def test_every_impairment_has_an_encoding() -> None:
    assert ENCODINGS.keys() == {each.field for each in IMPAIRMENTS}


@given(PLANS)
def test_a_plan_reads_back_from_its_message_exactly(plan: NetemPlan) -> None:
    assert read_back(over_netlink(plan)) == plan


def test_delays_and_jitter_are_reported_in_nanoseconds() -> None:
    options = kernel_options(replace(PLAN, delay_ns=1, impairments=Impairments(jitter_ns=999_999_999)))
    assert options.get_attr("TCA_NETEM_LATENCY64") == 1
    assert options.get_attr("TCA_NETEM_JITTER64") == 999_999_999


@pytest.mark.parametrize(("loss", "text"), [(0.0, 0), (1.0, 2**32 - 1), (0.5, 2**31), (0.001, 4_294_967)])
def test_loss_is_reported_as_a_share_of_all_32_bits(loss: float, text: int) -> None:
    assert kernel_options(replace(PLAN, impairments=Impairments(loss=loss)))["loss"] == text


@given(PLANS)
def test_options_outside_the_plan_are_off(plan: NetemPlan) -> None:
    options = kernel_options(plan)
    assert (options["gap"], options["duplicate"]) == (0, 0)
    assert (options["delay"], options["jitter"]) == (0, 0)
    for attribute in ("TCA_NETEM_CORR", "TCA_NETEM_REORDER", "TCA_NETEM_CORRUPT", "TCA_NETEM_DELAY_DIST"):
        assert options.get_attr(attribute) is None


@given(st.integers(MIN_BYTES_PER_S, ORDER_KEEPING_RATE_BYTES_PER_S - 1))
def test_a_rate_is_reported_in_64_bits_and_as_far_as_they_go_in_32(rate: int) -> None:
    options = kernel_options(replace(PLAN, rate_bytes_per_s=rate))
    assert options.get_attr("TCA_NETEM_RATE64") == rate
    assert options.get_attr("TCA_NETEM_RATE")["rate"] == min(rate, 2**32 - 1)


@pytest.mark.parametrize("rate", [MIN_BYTES_PER_S, 12_500_000, 2**32 - 1])
def test_a_rate_that_fits_32_bits_reads_back_without_the_64(rate: int) -> None:
    message = over_netlink(replace(PLAN, rate_bytes_per_s=rate))
    options = message.get_attr("TCA_OPTIONS")
    options["attrs"] = [each for each in options["attrs"] if each[0] != "TCA_NETEM_RATE64"]
    assert read_back(message).rate_bytes_per_s == rate


def test_a_rate_that_shapes_nothing_keeps_jittered_packets_in_order() -> None:
    def text(plan: NetemPlan) -> int:
        return int(kernel_options(plan).get_attr("TCA_NETEM_RATE64"))

    assert text(PLAN) == 0
    assert text(replace(PLAN, impairments=Impairments(jitter_ns=1))) == ORDER_KEEPING_RATE_BYTES_PER_S
    assert text(replace(PLAN, impairments=Impairments(jitter_ns=1), rate_bytes_per_s=1000)) == 1000


@pytest.mark.parametrize("rate_bps", [8 * 10**12, MAX_RATE_BPS])
def test_every_configurable_rate_reads_back(rate_bps: int) -> None:
    plan = replace(PLAN, impairments=Impairments(jitter_ns=1), rate_bytes_per_s=bytes_per_s(rate_bps))
    assert read_back(over_netlink(plan)) == plan


@given(PLANS, PLANS)
def test_a_replaced_plan_leaves_no_setting_of_the_old_one(old: NetemPlan, new: NetemPlan) -> None:
    def names(plan: NetemPlan) -> set[str]:
        return {name for name, _ in netem_options(plan)["attrs"]}

    assert names(old) == names(new)
