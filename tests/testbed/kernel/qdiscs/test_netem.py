from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from wanbed.ground.impairments import IMPAIRMENTS, Impairments
from wanbed.ground.units import MAX_RATE_BPS
from wanbed.testbed.kernel.qdiscs.netem import ENCODINGS, ORDER_KEEPING_RATE_BYTES_PER_S, netem_options, read_back
from wanbed.testbed.network.gateway_plan import NetemPlan
from wanbed.testbed.network.shared_rate import MIN_BYTES_PER_S, bytes_per_s

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
