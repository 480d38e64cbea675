"""Apply a port's shape in the kernel, and read it back: HTB classes, and netem in the kernel's own units.

Delays are in ns, rates have 64 bits, and dumps read back exactly. pyroute2's own netem encodes microseconds as
scheduler ticks, cannot set a rate, and lacks the 64-bit attributes. Importing this module replaces it by this encoder,
in this process only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyroute2.netlink.rtnl import TC_H_ROOT, tcmsg
from pyroute2.netlink.rtnl.tcmsg import sched_netem
from pyroute2.netlink.rtnl.tcmsg.common import time2tick

from wanbed.ground.errors import WanbedError
from wanbed.ground.impairments import FRACTION_DIGITS, Impairments
from wanbed.testbed.kernel import node_pair_classifier
from wanbed.testbed.kernel.node_pair_classifier import HTB_MAJOR
from wanbed.testbed.kernel.port_shape import DEFAULT_CLASS, TRUNK_CLASS, PortShape, ShapedClass
from wanbed.testbed.network.gateway_plan import NetemPlan, SharedRate

_MAJOR = HTB_MAJOR << 16


def apply_shape(netlink: Any, index: int, shape: PortShape) -> None:
    """Shape the interface of that index, which must have no qdisc yet. Raise NetlinkError if the kernel refuses."""
    netlink.tc("add", "htb", index, _MAJOR, default=DEFAULT_CLASS)
    netlink.tc("add-class", "htb", index, _MAJOR | TRUNK_CLASS, parent=_MAJOR, **trunk_parameters(shape))
    for each in shape.classes:
        parameters = class_parameters(shape, each)
        netlink.tc("add-class", "htb", index, _MAJOR | each.minor, parent=_MAJOR | TRUNK_CLASS, **parameters)
        if each.netem is not None:
            _netem(netlink, "add", index, each.minor, each.netem)
    netlink.tc("add-filter", "bpf", index, parent=_MAJOR, **node_pair_classifier.filter_request(shape.classifier))


def change_netem(netlink: Any, index: int, shape: PortShape) -> None:
    """Change every netem leaf of an interface that is shaped already to its plan in ``shape``."""
    for each in shape.classes:
        if each.netem is not None:
            _netem(netlink, "change", index, each.minor, each.netem)


def _netem(netlink: Any, command: str, index: int, minor: int, plan: NetemPlan) -> None:
    """Make or change the netem leaf below the class ``minor``."""
    netlink.tc(command, "netem", index, minor << 16, parent=_MAJOR | minor, options=netem_options(plan))


def trunk_parameters(shape: PortShape) -> dict[str, Any]:
    """Return pyroute2's parameters of the port's trunk class."""
    return _parameters(shape, shape.trunk.rate_bytes_per_s, shape.trunk)


def class_parameters(shape: PortShape, each: ShapedClass) -> dict[str, Any]:
    """Return pyroute2's parameters of one of the port's classes below its trunk."""
    return _parameters(shape, each.guaranteed_bytes_per_s, each.ceiling)


def _parameters(shape: PortShape, rate: int, ceiling: SharedRate) -> dict[str, Any]:
    return {
        "rate": rate,
        "ceil": ceiling.rate_bytes_per_s,
        "burst": _sent_in(ceiling.burst_us, rate),
        "cburst": _sent_in(ceiling.burst_us, ceiling.rate_bytes_per_s),
        "quantum": shape.quantum_bytes,
    }


def _sent_in(microseconds: int, rate_bytes_per_s: int) -> float:
    """Return a burst in bytes that pyroute2 converts back to exactly ``microseconds``; it truncates to whole ones."""
    return (microseconds + 0.5) * rate_bytes_per_s / 1e6


def read_shape(netlink: Any, index: int) -> PortShape:
    """Read the shape of an interface from the kernel. Raise LookupError if it has no HTB."""
    leaves = {
        message["parent"] & 0xFFFF: read_back(message)
        for message in netlink.get_qdiscs(index=index)
        if message.get_attr("TCA_KIND") == "netem"
    }
    classes = {message["handle"] & 0xFFFF: message for message in netlink.get_classes(index=index)}
    programs = (node_pair_classifier.read_back(message) for message in netlink.get_filters(index=index, parent=_MAJOR))
    if TRUNK_CLASS not in classes:
        raise LookupError("no HTB trunk class on this interface")
    trunk = classes.pop(TRUNK_CLASS)
    return PortShape(
        trunk_rate(trunk),
        tuple(
            ShapedClass(minor, _guaranteed_rate(classes[minor]), ceiling(classes[minor]), leaves.get(minor))
            for minor in sorted(classes)
        ),
        b"".join(programs),
    )


def _guaranteed_rate(class_message: Any) -> int:
    """Return the guaranteed rate of a dumped class, in bytes per second."""
    options = class_message.get_attr("TCA_OPTIONS")
    return int(options.get_attr("TCA_HTB_RATE64") or options.get_attr("TCA_HTB_PARMS")["rate"])


def ceiling(class_message: Any) -> SharedRate:
    """Return the ceiling of a dumped class, and its bucket."""
    options = class_message.get_attr("TCA_OPTIONS")
    parameters = options.get_attr("TCA_HTB_PARMS")
    rate = int(options.get_attr("TCA_HTB_CEIL64") or parameters["ceil"])
    return SharedRate(rate, round(parameters["cbuffer"] / float(time2tick(1))))


def trunk_rate(class_message: Any) -> SharedRate:
    """Return a dumped trunk class as planned. Raise LookupError if its ceiling is another than its rate."""
    held, guaranteed = ceiling(class_message), _guaranteed_rate(class_message)
    if held.rate_bytes_per_s != guaranteed:
        raise LookupError(f"a trunk of {guaranteed} bytes/s has a ceiling of {held.rate_bytes_per_s}")
    return held


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


class ReadBackError(WanbedError):
    """The kernel's state of a port differs from the plan; the message names the port and both states."""
