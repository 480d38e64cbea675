"""The shape of one port: a rate, classes below it, a netem leaf below a class, and a classifier. Pure data.

HTB gives every class its own rate before it looks at the parent's, so a class whose rate were its cap would break
through a smaller trunk. Here a class is guaranteed only its equal share of the trunk and may borrow up to its cap.
"""

from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from testbed.gateway_plan import Gateway, HostPort, NetemPlan, WanPort, pair_class
from testbed.qdiscs.node_pair_classifier import INTRA_CLASS, node_pair_program, same_datacenter_program

TRUNK_CLASS, DEFAULT_CLASS = 1, 2

UNSHAPED_BYTES_PER_S = 10**12
"""An HTB rate that shapes nothing, for rates that are unlimited."""

MIN_BYTES_PER_S = 8
"""Below it a full frame lasts longer than the kernel's rate tables tell, which count 64 ns in 32 bits."""


@dataclass(frozen=True)
class ShapedClass:
    """One HTB class: what it is guaranteed, what it may reach, and the netem leaf below it, if any."""

    minor: int
    guaranteed_bytes_per_s: int
    ceiling_bytes_per_s: int
    netem: NetemPlan | None


@dataclass(frozen=True)
class PortShape:
    """Everything programmed on one port, in the kernel's units; classes in ascending order of their number."""

    trunk_bytes_per_s: int
    classes: tuple[ShapedClass, ...]
    classifier: bytes


def bytes_per_s(rate_bps: int | None) -> int:
    """A rate as the kernel keeps it: whole bytes per second, at least ``MIN_BYTES_PER_S``."""
    return UNSHAPED_BYTES_PER_S if rate_bps is None else max(MIN_BYTES_PER_S, rate_bps // 8)


def host_port_shape(gateway: Gateway, port: HostPort) -> PortShape:
    """Towards a host: the port's rate for all, the intra-datacenter latency for what comes from the same datacenter."""
    rate = bytes_per_s(port.rate_bps)
    share = max(MIN_BYTES_PER_S, rate // 2)
    classes = (ShapedClass(DEFAULT_CLASS, share, rate, None), ShapedClass(INTRA_CLASS, share, rate, port.intra))
    return PortShape(rate, classes, same_datacenter_program(gateway.subnet))


def wan_port_shape(gateway: Gateway, port: WanPort) -> PortShape:
    """Towards another datacenter: the trunk's rate, and below it one class for each node pair, capped and delayed."""
    trunk, ceiling = bytes_per_s(port.rate_bps), bytes_per_s(port.pair_rate_bps)
    sources, destinations = len(port.sources), len(port.destinations)
    share = max(MIN_BYTES_PER_S, min(ceiling, trunk // (sources * destinations + 1)))
    pairs = (
        ShapedClass(pair_class(source, destination, destinations), share, ceiling, port.netem)
        for source in range(sources)
        for destination in range(destinations)
    )
    classes = (ShapedClass(DEFAULT_CLASS, share, trunk, port.netem), *pairs)
    return PortShape(trunk, classes, node_pair_program(gateway.subnet, sources, port.peer_subnet, destinations))


def describe(shape: PortShape) -> dict[str, Any]:
    """A shape in plain JSON types, for people and manifests; classes that are alike but for their number stand once."""

    def alike(entry: tuple[int, ShapedClass]) -> tuple[int, int, int, NetemPlan | None]:
        position, each = entry
        # The difference stays the same while numbers follow one another.
        return each.minor - position, each.guaranteed_bytes_per_s, each.ceiling_bytes_per_s, each.netem

    classes = []
    for (_, guaranteed, ceiling, netem), members in groupby(enumerate(shape.classes), key=alike):
        minors = [each.minor for _, each in members]
        classes.append(
            {
                "classes": f"1:{minors[0]:x}" if len(minors) == 1 else f"1:{minors[0]:x} to 1:{minors[-1]:x}",
                "guaranteed_bytes_per_s": guaranteed,
                "ceiling_bytes_per_s": ceiling,
                "netem": None if netem is None else asdict(netem),
            }
        )
    return {"htb_trunk_bytes_per_s": shape.trunk_bytes_per_s, "classes": classes}
