"""Describe the shaping of one port as plain data: a rate, classes below it, their netem leaves, and a classifier.

A class has practically no guaranteed rate: it borrows everything from the port's rate, which HTB gives to waiting
classes in turns of ``quantum_bytes``. So no class accumulates tokens, and packets after a pause are sent at the rates
of the leaf and of the port.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from wanbed.testbed.kernel.node_pair_classifier import (
    INTRA_CLASS,
    node_pair_program,
    same_datacenter_program,
    source_host_program,
)
from wanbed.testbed.network.gateway_plan import (
    Gateway,
    HostPort,
    NetemPlan,
    SharedRate,
    WanPort,
    pair_class,
    source_class,
)
from wanbed.testbed.network.shared_rate import MIN_BYTES_PER_S

TRUNK_CLASS, DEFAULT_CLASS = 1, 2

UNSHAPED_BYTES_PER_S = 10**12
"""An HTB rate that limits nothing, for unlimited rates."""

UNSHAPED = SharedRate(UNSHAPED_BYTES_PER_S, 420)


@dataclass(frozen=True)
class ShapedClass:
    """One HTB class: its guaranteed rate, its ceiling, and the netem leaf below it, if any."""

    minor: int
    guaranteed_bytes_per_s: int
    ceiling: SharedRate
    netem: NetemPlan | None


@dataclass(frozen=True)
class PortShape:
    """Everything programmed on one port, in the kernel's units; classes in ascending order of their minor number."""

    trunk: SharedRate
    classes: tuple[ShapedClass, ...]
    classifier: bytes
    fastest: SharedRate | None = field(default=None, compare=False)
    """Of a trunk that changes, the largest of its rates that can bind. The kernel does not know of it."""

    @property
    def quantum_bytes(self) -> int:
        """That of the fastest trunk, so that a class is not set anew when the trunk changes."""
        return (self.fastest or self.trunk).quantum_bytes


def host_port_shape(gateway: Gateway, port: HostPort) -> PortShape:
    """Return the shape of a port towards a host.

    The latency inside the datacenter applies to packets from the same datacenter, the port's rate to all packets.
    """
    if port.intra.rate_bytes_per_s is None:
        leaves: dict[int, NetemPlan | None] = {DEFAULT_CLASS: None, INTRA_CLASS: port.intra}
        return _shape([None], leaves, same_datacenter_program(gateway.subnet))
    near = {source_class(port.datacenter_index, each.host_index): port.intra for each in gateway.host_ports}
    del near[source_class(port.datacenter_index, port.host_index)]
    far = {source_class(each.datacenter_index, host): each.netem for each in port.far for host in range(each.hosts)}
    return _shape([port.shared], {DEFAULT_CLASS: None, **near, **far}, source_host_program(gateway.subnet))


def wan_port_shape(gateway: Gateway, port: WanPort, senders: Collection[str] | None = None) -> PortShape:
    """Return the shape of a port towards another datacenter: a leaf for each node pair, and the trunk's rate for all.

    A leaf delays and serialises. Packets of no node pair cross the same WAN, by the default class's leaf. If only some
    of the sources send through this port, ``senders``, only their pairs have leaves, numbered as ever.
    """
    sources, destinations = len(port.sources), len(port.destinations)
    pairs = {
        pair_class(source, destination, destinations): port.netem
        for source, name in enumerate(port.sources)
        if senders is None or name in senders
        for destination in range(destinations)
    }
    program = node_pair_program(gateway.subnet, sources, port.peer_subnet, destinations)
    return _shape([port.trunk, *port.trunks], {DEFAULT_CLASS: port.netem, **pairs}, program, port.pair)


def _shape(
    trunks: Sequence[SharedRate | None],
    leaves: Mapping[int, NetemPlan | None],
    program: bytes,
    pair: SharedRate | None = None,
) -> PortShape:
    """Return the shape of a port whose trunk is the first of ``trunks`` now, and all of them in the course of time.

    The classes are fit for all of them: only the trunk's own class has to change, and the ceilings of the others where
    they have one of their own now, ``pair``.
    """
    binding = [trunk for trunk in trunks if trunk is not None]
    guaranteed = MIN_BYTES_PER_S if binding else UNSHAPED_BYTES_PER_S
    ceiling = pair or max((trunk or UNSHAPED for trunk in trunks), key=_rate)
    classes = (ShapedClass(minor, guaranteed, ceiling, leaves[minor]) for minor in sorted(leaves))
    return PortShape(trunks[0] or UNSHAPED, tuple(classes), program, max(binding, key=_rate, default=None))


def _rate(shared: SharedRate) -> int:
    return shared.rate_bytes_per_s


def describe(shape: PortShape) -> dict[str, Any]:
    """Return a shape in plain JSON types, for people and manifests.

    Consecutive classes that differ only in their number are listed once, with their bucket if it is not the trunk's.
    """

    def alike(entry: tuple[int, ShapedClass]) -> tuple[int, int, SharedRate, NetemPlan | None]:
        position, each = entry
        # The difference is constant over consecutive numbers.
        return each.minor - position, each.guaranteed_bytes_per_s, each.ceiling, each.netem

    classes = []
    for (_, guaranteed, ceiling, netem), members in groupby(enumerate(shape.classes), key=alike):
        minors = [each.minor for _, each in members]
        own_burst = {} if ceiling.burst_us == shape.trunk.burst_us else {"ceiling_burst_us": ceiling.burst_us}
        classes.append(
            {
                "classes": f"1:{minors[0]:x}" if len(minors) == 1 else f"1:{minors[0]:x} to 1:{minors[-1]:x}",
                "guaranteed_bytes_per_s": guaranteed,
                "ceiling_bytes_per_s": ceiling.rate_bytes_per_s,
                **own_burst,
                "netem": None if netem is None else netem.document(),
            }
        )
    return {
        "htb_trunk_bytes_per_s": shape.trunk.rate_bytes_per_s,
        "htb_burst_us": shape.trunk.burst_us,
        "classes": classes,
    }
