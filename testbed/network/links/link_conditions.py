"""Define the conditions of a link in one direction. Latencies are one-way."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from wanbed.ground.impairments import IMPAIRMENTS, UNIMPAIRED, Impairments
from wanbed.testbed.network.links.figures_spec import FIGURES, FiguresSpec

Values = Mapping[str, Any]
"""Some conditions of a link: values by the name of the field in an experiment file, or ``up``."""


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

    @property
    def arrives(self) -> bool:
        """Whether anything that is sent arrives at all."""
        return self.up and not any(each.if_all and value >= 1 for each, value in self.impairments.items())

    def with_values(self, values: Values) -> "LinkConditions":
        """Return the same with other values of some fields."""
        own = {attribute: values[name] for name, attribute in _ATTRIBUTES.items() if name in values}
        impairments = {each.field: values[each.name] for each in IMPAIRMENTS if each.name in values}
        return replace(self, **own, impairments=replace(self.impairments, **impairments))

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


_ATTRIBUTES = {"latency": "latency_ns", "rate": "rate_bps", "node_pair_rate": "node_pair_rate_bps", "up": "up"}
"""The attributes of a link's conditions, but its impairments, by the name of the field."""


def conditions_of(spec: FiguresSpec, base: LinkConditions = LinkConditions()) -> LinkConditions:
    """Return a link as written; fields that are not written come from ``base``."""
    return base.with_values({name: getattr(spec, name) for name in FIGURES if name in spec.model_fields_set})
