"""Define the conditions of a link in one direction, and the WAN link between two datacenters. Latencies are one-way."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from ground.impairments import IMPAIRMENTS, UNIMPAIRED, Impairments
from testbed.network.topology_spec import WanSpec


@dataclass(frozen=True)
class LinkConditions:
    """One-way latency, rates and impairments of a link, the same in both directions. A rate of None is unlimited."""

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

    @property
    def pair_in_flight_bytes(self) -> float | None:
        """The bytes that a node pair has in flight at that rate, rate x RTT; None without a rate."""
        rate_bps = self.pair_rate_bps
        return None if rate_bps is None else rate_bps / 8 * 2 * self.latency_ns / 1e9


@dataclass(frozen=True)
class WanLink:
    """The link between two datacenters; ``between`` has their names in the topology's order."""

    between: tuple[str, str]
    conditions: LinkConditions


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
