"""Define the conditions of a link in one direction, and the WAN link between two datacenters. Latencies are one-way."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from ground.impairments import IMPAIRMENTS, UNIMPAIRED, Impairments
from testbed.network.topology_spec import WanSpec


@dataclass(frozen=True)
class LinkConditions:
    """Latency, rates and impairments of one direction of a link. A rate of None is unlimited."""

    latency_ns: int = 0
    rate_bps: int | None = None
    node_pair_rate_bps: int | None = None
    impairments: Impairments = UNIMPAIRED

    def document(self) -> dict[str, Any]:
        """Return latency, rates and impairments in plain JSON types, all at one level, as in manifests."""
        rates = {"rate_bps": self.rate_bps, "node_pair_rate_bps": self.node_pair_rate_bps}
        return {"latency_ns": self.latency_ns, **rates, **asdict(self.impairments)}

    @property
    def pair_rate_bps(self) -> int | None:
        """The largest rate of one node pair: the smaller of ``node_pair_rate_bps`` and the trunk's rate."""
        rates = [rate for rate in (self.rate_bps, self.node_pair_rate_bps) if rate is not None]
        return min(rates, default=None)


@dataclass(frozen=True)
class WanLink:
    """The link between two datacenters; ``between`` has their names in the topology's order.

    ``conditions`` are those from the first to the second, ``back`` those of the other direction, None if the same.
    """

    between: tuple[str, str]
    conditions: LinkConditions
    back: LinkConditions | None = None

    @property
    def directions(self) -> tuple[tuple[tuple[str, str], LinkConditions], ...]:
        """Each direction: the sending and the receiving datacenter, and the conditions."""
        back = self.conditions if self.back is None else self.back
        return (self.between, self.conditions), (self.between[::-1], back)

    def changed(self, change: Callable[[LinkConditions], LinkConditions]) -> "WanLink":
        """Return the same link with ``change`` made to each direction."""
        (_, there), (_, back) = self.directions
        return link_of(self.between, change(there), change(back))

    def documents(self) -> list[dict[str, Any]]:
        """Return the link in plain JSON types, as in manifests: one entry for both directions, or one for each."""
        if self.back is None:
            return [{"between": list(self.between), **self.conditions.document()}]
        return [
            {"from": source, "to": destination, **conditions.document()}
            for (source, destination), conditions in self.directions
        ]


def link_of(between: tuple[str, str], there: LinkConditions, back: LinkConditions) -> WanLink:
    """Return the link with these conditions from its first end to its second, and back."""
    return WanLink(between, there, None if back == there else back)


def conditions_of(spec: WanSpec, base: LinkConditions = LinkConditions()) -> LinkConditions:
    """Return a link as written; fields that are not written come from ``base``."""
    written = spec.model_fields_set
    impairments = {each.field: getattr(spec, each.name) for each in IMPAIRMENTS if each.name in written}
    return LinkConditions(
        latency_ns=spec.latency if "latency" in written else base.latency_ns,
        rate_bps=spec.rate if "rate" in written else base.rate_bps,
        node_pair_rate_bps=spec.node_pair_rate if "node_pair_rate" in written else base.node_pair_rate_bps,
        impairments=replace(base.impairments, **impairments),
    )
