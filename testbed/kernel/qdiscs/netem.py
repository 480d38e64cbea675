"""Encode netem over netlink in the kernel's own units: ns delays, 64-bit rates, and dumps that read back exactly.

pyroute2's own netem encodes microseconds through scheduler ticks, cannot set a rate, and lacks the 64-bit attributes.
Importing this module puts this encoder in its place, in this process only.
"""

from typing import Any

from pyroute2.netlink.rtnl import TC_H_ROOT, tcmsg
from pyroute2.netlink.rtnl.tcmsg import sched_netem

from testbed.network.gateway_plan import LOSS_DIGITS, NetemPlan

ORDER_KEEPING_RATE_BYTES_PER_S = 10**15
"""Above any rate that can be asked for, so that it shapes nothing: with a rate set, netem keeps packets in order."""

_PROBABILITY_ONE = 2**32 - 1
_UINT32_MAX = 2**32 - 1


class _Options(sched_netem.options):  # type: ignore[misc]
    """netem's attributes, completed by those that pyroute2 leaves out."""

    nla_map = (
        ("TCA_NETEM_UNSPEC", "none"),
        ("TCA_NETEM_CORR", "netem_corr"),
        ("TCA_NETEM_DELAY_DIST", "none"),
        ("TCA_NETEM_REORDER", "netem_reorder"),
        ("TCA_NETEM_CORRUPT", "netem_corrupt"),
        ("TCA_NETEM_LOSS", "none"),
        ("TCA_NETEM_RATE", "netem_rate"),
        ("TCA_NETEM_ECN", "uint32"),
        ("TCA_NETEM_RATE64", "uint64"),
        ("TCA_NETEM_PAD", "none"),
        ("TCA_NETEM_LATENCY64", "int64"),
        ("TCA_NETEM_JITTER64", "int64"),
    )


class _Plugin:
    """The object that pyroute2 looks up for the kind ``netem``: the options travel as ``netem_options`` makes them."""

    parent = TC_H_ROOT
    options = _Options


def netem_options(plan: NetemPlan) -> dict[str, Any]:
    """Return options of ``IPRoute.tc(..., kind="netem")`` for a plan.

    They are complete, so that a replace keeps no old setting.
    """
    unlimited = ORDER_KEEPING_RATE_BYTES_PER_S if plan.jitter_ns else 0
    rate = unlimited if plan.rate_bytes_per_s is None else plan.rate_bytes_per_s
    return {
        "delay": 0,
        "limit": plan.limit_packets,
        "loss": round(_PROBABILITY_ONE * plan.loss),
        "gap": 0,
        "duplicate": 0,
        "jitter": 0,
        "attrs": [
            ("TCA_NETEM_LATENCY64", plan.delay_ns),
            ("TCA_NETEM_JITTER64", plan.jitter_ns),
            (
                "TCA_NETEM_RATE",
                {"rate": min(rate, _UINT32_MAX), "packet_overhead": 0, "cell_size": 0, "cell_overhead": 0},
            ),
            ("TCA_NETEM_RATE64", rate),
        ],
    }


def read_back(qdisc: Any) -> NetemPlan:
    """Read the settings of a dumped netem qdisc, in the units of a plan."""
    values = qdisc.get_attr("TCA_OPTIONS")
    # The kernel tells the longer one only of a rate that needs it.
    rate = values.get_attr("TCA_NETEM_RATE64") or values.get_attr("TCA_NETEM_RATE")["rate"]
    return NetemPlan(
        delay_ns=values.get_attr("TCA_NETEM_LATENCY64"),
        jitter_ns=values.get_attr("TCA_NETEM_JITTER64"),
        loss=round(values["loss"] / _PROBABILITY_ONE, LOSS_DIGITS),
        limit_packets=values["limit"],
        rate_bytes_per_s=None if rate in {0, ORDER_KEEPING_RATE_BYTES_PER_S} else rate,
    )


tcmsg.plugins["netem"] = _Plugin
