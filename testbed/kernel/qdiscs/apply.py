"""Apply a port's shape in the kernel, and read it back."""

from typing import Any

from pyroute2.netlink.rtnl.tcmsg.common import time2tick

from testbed.kernel.qdiscs import netem, node_pair_classifier
from testbed.kernel.qdiscs.node_pair_classifier import HTB_MAJOR
from testbed.kernel.qdiscs.port_shape import DEFAULT_CLASS, TRUNK_CLASS, PortShape, ShapedClass
from testbed.network.gateway_plan import SharedRate

_MAJOR = HTB_MAJOR << 16


def apply_shape(netlink: Any, index: int, shape: PortShape) -> None:
    """Shape the interface of that index, which must have no qdisc yet. Raise NetlinkError if the kernel refuses."""
    netlink.tc("add", "htb", index, _MAJOR, default=DEFAULT_CLASS)
    rate = shape.trunk.rate_bytes_per_s
    _add_class(netlink, index, TRUNK_CLASS, shape, parent=_MAJOR, rate=rate, ceiling=rate)
    for each in shape.classes:
        _add_class(
            netlink,
            index,
            each.minor,
            shape,
            parent=_MAJOR | TRUNK_CLASS,
            rate=each.guaranteed_bytes_per_s,
            ceiling=each.ceiling_bytes_per_s,
        )
        if each.netem is not None:
            _netem(netlink, "add", index, each)
    netlink.tc("add-filter", "bpf", index, parent=_MAJOR, **node_pair_classifier.filter_request(shape.classifier))


def change_netem(netlink: Any, index: int, shape: PortShape) -> None:
    """Change every netem leaf of an interface that is shaped already to its plan in ``shape``."""
    for each in shape.classes:
        if each.netem is not None:
            _netem(netlink, "change", index, each)


def _netem(netlink: Any, command: str, index: int, below: ShapedClass) -> None:
    assert below.netem is not None
    options = netem.netem_options(below.netem)
    netlink.tc(command, "netem", index, below.minor << 16, parent=_MAJOR | below.minor, options=options)


def _add_class(netlink: Any, index: int, minor: int, shape: PortShape, *, parent: int, rate: int, ceiling: int) -> None:
    netlink.tc(
        "add-class",
        "htb",
        index,
        _MAJOR | minor,
        parent=parent,
        rate=rate,
        ceil=ceiling,
        burst=_sent_in(shape.trunk.burst_us, rate),
        cburst=_sent_in(shape.trunk.burst_us, ceiling),
        quantum=shape.quantum_bytes,
    )


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
        SharedRate(_rates(trunk)[0], _burst_us(trunk)),
        tuple(ShapedClass(minor, *_rates(classes[minor]), leaves.get(minor)) for minor in sorted(classes)),
        b"".join(programs),
    )


def _rates(class_message: Any) -> tuple[int, int]:
    options = class_message.get_attr("TCA_OPTIONS")
    parameters = options.get_attr("TCA_HTB_PARMS")
    return (
        options.get_attr("TCA_HTB_RATE64") or parameters["rate"],
        options.get_attr("TCA_HTB_CEIL64") or parameters["ceil"],
    )


def _burst_us(class_message: Any) -> int:
    ticks = int(class_message.get_attr("TCA_OPTIONS").get_attr("TCA_HTB_PARMS")["buffer"])
    return round(ticks / float(time2tick(1)))
