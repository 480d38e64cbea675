"""Define the conditions of a link in one direction. Latencies are one-way."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from ground.impairments import IMPAIRMENTS, UNIMPAIRED, Impairments
from testbed.network.topology_spec import WanSpec


@dataclass(frozen=True)
class LinkConditions:
    """Latency, rates and impairments of one direction of a link. A rate of None is unlimited.

    While a link is not ``up``, nothing that is sent over it arrives.
    """

    latency_ns: int = 0
    rate_bps: int | None = None
    node_pair_rate_bps: int | None = None
    impairments: Impairments = UNIMPAIRED
    up: bool = True

    def document(self) -> dict[str, Any]:
        """Return latency, rates and impairments in plain JSON types, all at one level, as in manifests."""
        rates = {"rate_bps": self.rate_bps, "node_pair_rate_bps": self.node_pair_rate_bps}
        down = {} if self.up else {"up": False}
        return {"latency_ns": self.latency_ns, **rates, **asdict(self.impairments), **down}

    def dilated(self, factor: float) -> "LinkConditions":
        """Return the same in dilated time: every delay times ``factor``, every rate divided by it."""

        def slower(rate_bps: int | None) -> int | None:
            return None if rate_bps is None else max(1, round(rate_bps / factor))

        return replace(
            self,
            latency_ns=round(self.latency_ns * factor),
            rate_bps=slower(self.rate_bps),
            node_pair_rate_bps=slower(self.node_pair_rate_bps),
            impairments=self.impairments.dilated(factor),
        )

    @property
    def pair_rate_bps(self) -> int | None:
        """The largest rate of one node pair: the smaller of ``node_pair_rate_bps`` and the trunk's rate."""
        rates = [rate for rate in (self.rate_bps, self.node_pair_rate_bps) if rate is not None]
        return min(rates, default=None)


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
