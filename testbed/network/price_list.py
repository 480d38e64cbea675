"""The prices of a network: of GPU-hours by datacenter, and of bytes sent over the WAN by direction of a link.

Prices are US dollars. What has no price costs nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from math import fsum

from wanbed.ground.errors import InputError
from wanbed.testbed.network.topology_spec import DatacenterSpec, TopologySpec

Ends = tuple[str, str]
"""The sending and the receiving datacenter."""

BYTES_PER_GB = 10**9


@dataclass(frozen=True)
class PriceList:
    """The prices of every datacenter's GPUs, and of every direction of a link between two of them.

    Prices of GPUs are for an hour of one, those of links for 10^9 bytes on the wire.
    """

    gpu_usd_per_h: tuple[tuple[str, float], ...]
    egress_usd_per_gb: tuple[tuple[Ends, float], ...]

    @cached_property
    def of_gpu(self) -> Mapping[str, float]:
        """The price of an hour of a GPU, by datacenter."""
        return dict(self.gpu_usd_per_h)

    @cached_property
    def of_gb(self) -> Mapping[Ends, float]:
        """The price of 10^9 bytes over a link, by its ends."""
        return dict(self.egress_usd_per_gb)

    @property
    def any_above_zero(self) -> bool:
        """True unless everything is free."""
        return any(self.of_gpu.values()) or any(self.of_gb.values())

    def gpus_usd_per_h(self, gpus: Mapping[str, int]) -> float:
        """Return what an hour of so many GPUs in each datacenter costs."""
        return fsum(count * self.of_gpu[name] for name, count in gpus.items())

    def egress_usd(self, sent_bytes: Mapping[Ends, float]) -> float:
        """Return what so many bytes over each direction of a link cost."""
        return fsum(size_bytes * self.of_gb[ends] for ends, size_bytes in sent_bytes.items()) / BYTES_PER_GB


def price_list(spec: TopologySpec) -> PriceList | None:
    """Return the prices of a network, None if it has none.

    Raise InputError where some datacenters have a price and others do not.
    """
    gpu = _of_all(spec, "gpu_price", "0USD/h where GPUs cost nothing")
    egress = _of_all(spec, "egress_price", "0USD/GB where nothing is paid for what is sent")
    of_links = [link.egress_price is not None for link in spec.links]
    if egress is None and any(of_links):
        raise InputError(
            f"topology.links.{of_links.index(True)}.egress_price: it is in place of the datacenters' own, and they "
            "have none: give each an egress_price"
        )
    if gpu is None and egress is None:
        return None
    names = [each.name for each in spec.datacenters]
    of_datacenter = egress or dict.fromkeys(names, 0.0)
    prices = {ends: of_datacenter[ends[0]] for ends in permutations(names, 2)}
    # What is written of one direction stands above what is written of both.
    for link in sorted(spec.links, key=lambda link: link.between is None):
        if link.egress_price is not None:
            both = () if link.between is None else (link.ends[::-1],)
            prices |= dict.fromkeys((link.ends, *both), link.egress_price)
    return PriceList(tuple((gpu or dict.fromkeys(names, 0.0)).items()), tuple(prices.items()))


def _of_all(spec: TopologySpec, field: str, free: str) -> dict[str, float] | None:
    """Return the price of that name of every datacenter, None if none has one. Raise InputError if only some have."""
    prices = [_price(each, field) for each in spec.datacenters]
    known = {each.name: price for each, price in zip(spec.datacenters, prices, strict=True) if price is not None}
    if known and None in prices:
        raise InputError(
            f"topology.datacenters.{prices.index(None)}.{field}: {next(iter(known))} has one: give every datacenter "
            f"one, {free}"
        )
    return known or None


def _price(datacenter: DatacenterSpec, field: str) -> float | None:
    price: float | None = getattr(datacenter, field)
    return price
