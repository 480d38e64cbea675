"""Putting a port's shape into the kernel, and reading it out again."""

from typing import Any

from testbed.qdiscs import netem, node_pair_classifier
from testbed.qdiscs.node_pair_classifier import HTB_MAJOR
from testbed.qdiscs.port_shape import DEFAULT_CLASS, TRUNK_CLASS, PortShape, ShapedClass

_MAJOR = HTB_MAJOR << 16

_BURST_MIN_BYTES = 128 * 1024
"""A super-packet of 64 KiB, and what 50 Mbit/s carry in one tick of a guest kernel's clock (100 Hz): with less, several
slow classes at once stay 5 % below their rates there."""
_BURST_NS = 420_000
"""256 KiB at 5 Gbit/s, with which HTB reaches its rate; with its own default it stays 13 % below."""
_BURST_MAX_S = 60
"""HTB's own horizon; the 32 bits that tell a burst, as the time it takes, end at 275 s."""
_QUANTUM_BYTES = 60_000


def apply_shape(netlink: Any, index: int, shape: PortShape) -> None:
    """Shape the interface of that index, which must carry no qdisc of its own yet. Raises NetlinkError."""
    netlink.tc("add", "htb", index, _MAJOR, default=DEFAULT_CLASS)
    _add_class(
        netlink, index, TRUNK_CLASS, parent=_MAJOR, rate=shape.trunk_bytes_per_s, ceiling=shape.trunk_bytes_per_s
    )
    for each in shape.classes:
        _add_class(
            netlink,
            index,
            each.minor,
            parent=_MAJOR | TRUNK_CLASS,
            rate=each.guaranteed_bytes_per_s,
            ceiling=each.ceiling_bytes_per_s,
        )
        if each.netem is not None:
            _netem(netlink, "add", index, each)
    netlink.tc("add-filter", "bpf", index, parent=_MAJOR, **node_pair_classifier.filter_request(shape.classifier))


def change_netem(netlink: Any, index: int, shape: PortShape) -> None:
    """Give every netem leaf of an interface that is shaped already the settings it has in ``shape``."""
    for each in shape.classes:
        if each.netem is not None:
            _netem(netlink, "change", index, each)


def _netem(netlink: Any, command: str, index: int, below: ShapedClass) -> None:
    assert below.netem is not None
    options = netem.netem_options(below.netem)
    netlink.tc(command, "netem", index, below.minor << 16, parent=_MAJOR | below.minor, options=options)


def _add_class(netlink: Any, index: int, minor: int, *, parent: int, rate: int, ceiling: int) -> None:
    netlink.tc(
        "add-class",
        "htb",
        index,
        _MAJOR | minor,
        parent=parent,
        rate=rate,
        ceil=ceiling,
        burst=burst_bytes(rate),
        cburst=burst_bytes(ceiling),
        quantum=_QUANTUM_BYTES,
    )


def burst_bytes(rate_bytes_per_s: int) -> int:
    """What a class of that rate may send at once, when it has sent nothing for a while."""
    return min(rate_bytes_per_s * _BURST_MAX_S, max(_BURST_MIN_BYTES, rate_bytes_per_s * _BURST_NS // 10**9))


def read_shape(netlink: Any, index: int) -> PortShape:
    """What the kernel holds on an interface, in the terms of a shape. Raises LookupError without HTB."""
    leaves = {
        message["parent"] & 0xFFFF: netem.read_back(message)
        for message in netlink.get_qdiscs(index=index)
        if message.get_attr("TCA_KIND") == "netem"
    }
    rates = {message["handle"] & 0xFFFF: _rates(message) for message in netlink.get_classes(index=index)}
    programs = (node_pair_classifier.read_back(message) for message in netlink.get_filters(index=index, parent=_MAJOR))
    if TRUNK_CLASS not in rates:
        raise LookupError("no HTB trunk class on this interface")
    return PortShape(
        rates[TRUNK_CLASS][0],
        tuple(ShapedClass(minor, *rates[minor], leaves.get(minor)) for minor in sorted(rates) if minor != TRUNK_CLASS),
        b"".join(programs),
    )


def _rates(class_message: Any) -> tuple[int, int]:
    options = class_message.get_attr("TCA_OPTIONS")
    parameters = options.get_attr("TCA_HTB_PARMS")
    return (
        options.get_attr("TCA_HTB_RATE64") or parameters["rate"],
        options.get_attr("TCA_HTB_CEIL64") or parameters["ceil"],
    )
