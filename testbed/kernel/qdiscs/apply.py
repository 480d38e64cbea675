"""Apply a port's shape in the kernel, and read it back."""

from typing import Any

from pyroute2.netlink.rtnl.tcmsg.common import time2tick

from wanbed.testbed.kernel.qdiscs import netem, node_pair_classifier
from wanbed.testbed.kernel.qdiscs.node_pair_classifier import HTB_MAJOR
from wanbed.testbed.kernel.qdiscs.port_shape import DEFAULT_CLASS, TRUNK_CLASS, PortShape, ShapedClass
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
    netlink.tc(command, "netem", index, minor << 16, parent=_MAJOR | minor, options=netem.netem_options(plan))


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
        message["parent"] & 0xFFFF: netem.read_back(message)
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
            ShapedClass(minor, guaranteed_rate(classes[minor]), ceiling(classes[minor]), leaves.get(minor))
            for minor in sorted(classes)
        ),
        b"".join(programs),
    )


def guaranteed_rate(class_message: Any) -> int:
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
    held, guaranteed = ceiling(class_message), guaranteed_rate(class_message)
    if held.rate_bytes_per_s != guaranteed:
        raise LookupError(f"a trunk of {guaranteed} bytes/s has a ceiling of {held.rate_bytes_per_s}")
    return held
