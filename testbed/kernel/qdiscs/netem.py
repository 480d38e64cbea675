"""Encode netem over netlink in the kernel's own units: delays in ns, 64-bit rates, dumps that read back exactly.

pyroute2's own netem encodes microseconds as scheduler ticks, cannot set a rate, and lacks the 64-bit attributes.
Importing this module replaces it by this encoder, in this process only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyroute2.netlink.rtnl import TC_H_ROOT, tcmsg
from pyroute2.netlink.rtnl.tcmsg import sched_netem

from wanbed.ground.impairments import FRACTION_DIGITS, Impairments
from wanbed.testbed.network.gateway_plan import NetemPlan

ORDER_KEEPING_RATE_BYTES_PER_S = 10**15
"""Above any configurable rate, so that it limits nothing. netem keeps packets in order only if a rate is set."""

_PROBABILITY_ONE = 2**32 - 1
_UINT32_MAX = 2**32 - 1


class _Options(sched_netem.options):  # type: ignore[misc]
    """netem's attributes, including those that pyroute2 lacks."""

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
    """The object that pyroute2 looks up for the kind ``netem``; it sends options as ``netem_options`` returns them."""

    parent = TC_H_ROOT
    options = _Options


def _share(fraction: float) -> int:
    return round(_PROBABILITY_ONE * fraction)


def _fraction(share: int) -> float:
    return round(share / _PROBABILITY_ONE, FRACTION_DIGITS)


@dataclass(frozen=True)
class Encoding:
    """The encoding of a value of one impairment, zero included, for the kernel, and how to read it from a dump.

    Encoded names that begin with ``TCA_`` are attributes, others are fields of netem's own structure.
    """

    encode: Callable[[Any], dict[str, Any]]
    read: Callable[[Any], Any]


ENCODINGS = {
    "jitter_ns": Encoding(
        lambda jitter_ns: {"TCA_NETEM_JITTER64": jitter_ns}, lambda values: values.get_attr("TCA_NETEM_JITTER64")
    ),
    "loss": Encoding(lambda loss: {"loss": _share(loss)}, lambda values: _fraction(values["loss"])),
}
"""The encoding of every field of ``Impairments``."""


def netem_options(plan: NetemPlan) -> dict[str, Any]:
    """Return the options of ``IPRoute.tc(..., kind="netem")`` for a plan.

    They are complete, so that no earlier option remains after a change.
    """
    ordered = plan.keeps_order or plan.impairments.delay_spread_ns
    unlimited = ORDER_KEEPING_RATE_BYTES_PER_S if ordered else 0
    rate = unlimited if plan.rate_bytes_per_s is None else plan.rate_bytes_per_s
    encoded: dict[str, Any] = {}
    for each, value in plan.impairments.items():
        encoded |= ENCODINGS[each.field].encode(value)
    return {
        "delay": 0,
        "limit": plan.limit_packets,
        "loss": 0,
        "gap": 0,
        "duplicate": 0,
        "jitter": 0,
        **{name: value for name, value in encoded.items() if not name.startswith("TCA_")},
        "attrs": [
            ("TCA_NETEM_LATENCY64", plan.delay_ns),
            *((name, value) for name, value in encoded.items() if name.startswith("TCA_")),
            (
                "TCA_NETEM_RATE",
                {"rate": min(rate, _UINT32_MAX), "packet_overhead": 0, "cell_size": 0, "cell_overhead": 0},
            ),
            ("TCA_NETEM_RATE64", rate),
        ],
    }


def read_back(qdisc: Any) -> NetemPlan:
    """Return a dumped netem qdisc as a plan."""
    values = qdisc.get_attr("TCA_OPTIONS")
    # The kernel dumps the 64-bit attribute only for a rate that needs it.
    rate = values.get_attr("TCA_NETEM_RATE64") or values.get_attr("TCA_NETEM_RATE")["rate"]
    impairments = Impairments(**{field: encoding.read(values) for field, encoding in ENCODINGS.items()})
    return NetemPlan(
        delay_ns=values.get_attr("TCA_NETEM_LATENCY64"),
        limit_packets=values["limit"],
        rate_bytes_per_s=None if rate in {0, ORDER_KEEPING_RATE_BYTES_PER_S} else rate,
        impairments=impairments,
        # A jitter has that rate too.
        keeps_order=rate == ORDER_KEEPING_RATE_BYTES_PER_S and not impairments.delay_spread_ns,
    )


tcmsg.plugins["netem"] = _Plugin
