from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from testbed.gateway_plan import LOSS_DIGITS, NetemPlan
from testbed.qdiscs.netem import ORDER_KEEPING_RATE_BYTES_PER_S, netem_options, read_back

PLANS = st.builds(
    NetemPlan,
    delay_ns=st.integers(0, 2**62),
    jitter_ns=st.integers(0, 2**62),
    loss=st.floats(0, 1).map(lambda loss: round(loss, LOSS_DIGITS)),
    limit_packets=st.integers(1, 2**32 - 1),
)
PLAN = NetemPlan(delay_ns=40_000_001, jitter_ns=0, loss=0.0, limit_packets=1000)


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


@given(PLANS)
def test_a_plan_reads_back_from_its_message_exactly(plan: NetemPlan) -> None:
    assert read_back(over_netlink(plan)) == plan


def test_delays_and_jitter_are_told_in_nanoseconds() -> None:
    options = kernel_options(replace(PLAN, delay_ns=1, jitter_ns=999_999_999))
    assert options.get_attr("TCA_NETEM_LATENCY64") == 1
    assert options.get_attr("TCA_NETEM_JITTER64") == 999_999_999


@pytest.mark.parametrize(("loss", "told"), [(0.0, 0), (1.0, 2**32 - 1), (0.5, 2**31), (0.001, 4_294_967)])
def test_loss_is_told_as_a_share_of_all_32_bits(loss: float, told: int) -> None:
    assert kernel_options(replace(PLAN, loss=loss))["loss"] == told


@given(PLANS)
def test_nothing_but_what_a_plan_asks_is_switched_on(plan: NetemPlan) -> None:
    options = kernel_options(plan)
    assert (options["gap"], options["duplicate"]) == (0, 0)
    assert (options["delay"], options["jitter"]) == (0, 0)
    for attribute in ("TCA_NETEM_CORR", "TCA_NETEM_REORDER", "TCA_NETEM_CORRUPT", "TCA_NETEM_DELAY_DIST"):
        assert options.get_attr(attribute) is None


@given(PLANS)
def test_a_rate_that_shapes_nothing_keeps_jittered_packets_in_order(plan: NetemPlan) -> None:
    rate = kernel_options(plan).get_attr("TCA_NETEM_RATE64")
    assert rate == (ORDER_KEEPING_RATE_BYTES_PER_S if plan.jitter_ns else 0)


@given(PLANS, PLANS)
def test_a_replaced_plan_leaves_no_setting_of_the_old_one(old: NetemPlan, new: NetemPlan) -> None:
    def names(plan: NetemPlan) -> set[str]:
        return {name for name, _ in netem_options(plan)["attrs"]}

    assert names(old) == names(new)
