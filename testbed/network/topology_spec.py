"""Define the section ``topology`` of the experiment file. Latencies are one-way."""

import re
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, create_model, field_validator, model_validator

from ground.impairments import UNIMPAIRED
from ground.shown_text import shown
from ground.strict_model import Model, StrictModel
from ground.units import DurationNs, Fraction, RateBps, format_duration

MAX_DELAY_NS = 60 * 10**9
MAX_HOSTS_PER_DATACENTER = 65_536
MAX_DATACENTERS = 250
MAX_SCALE = 1000
MAX_HOSTS = 2**20
"""Limit of all datacenters together."""


def _check_name(name: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}", name) is None:
        raise ValueError(
            f"{shown(name)} is not a valid name: give at most 40 letters, digits, dots, dashes and underscores"
        )
    return name


def _check_delay(delay_ns: int) -> int:
    if delay_ns > MAX_DELAY_NS:
        raise ValueError(
            f"{format_duration(delay_ns)} is above the {format_duration(MAX_DELAY_NS)} that a link may have"
        )
    return delay_ns


Name = Annotated[str, AfterValidator(_check_name)]
DelayNs = Annotated[DurationNs, AfterValidator(_check_delay)]


class DatacenterSpec(StrictModel):
    """One datacenter: its hosts are named ``<name>-0``, ``<name>-1``, and so on.

    ``serving_hosts`` (default 0) is the number of additional hosts that do not train, ``<name>-serving-0`` and so on.
    Inference decodes there: their GPUs, ``gpus_per_host`` each, belong to a serving pool.
    """

    name: Name
    hosts: int = Field(ge=1, le=MAX_HOSTS_PER_DATACENTER)
    gpus_per_host: int = Field(default=1, ge=1, le=64)
    serving_hosts: int = Field(default=0, ge=0, le=MAX_HOSTS_PER_DATACENTER)


class IntraSpec(StrictModel):
    """The network inside every datacenter: one-way latency host to host, and the rate of each host's port."""

    latency: DelayNs = 50_000
    rate: RateBps = None


def _with_impairments(model: type[Model]) -> type[Model]:
    """Add a field for each impairment to a model."""
    fields: dict[str, Any] = {
        each.name: (DelayNs if each.is_duration else Fraction, none) for each, none in UNIMPAIRED.items()
    }
    return create_model(model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **fields)


@_with_impairments
class WanSpec(StrictModel):
    """Latency, rates and impairments of a WAN link.

    ``rate`` is that of the trunk between two datacenters; ``node_pair_rate`` limits each pair of hosts across it. Each
    impairment of ``ground.impairments`` has a field: ``jitter`` is the largest deviation of the one-way latency to
    either side, uniformly distributed and without reordering; ``loss`` is the fraction of packets dropped at random in
    each direction.
    """

    latency: DelayNs = 0
    rate: RateBps = None
    node_pair_rate: RateBps = None


class PairSpec(WanSpec):
    """The link of one pair of datacenters, alike in both directions."""

    between: tuple[str, str]


class LinkSpec(WanSpec):
    """What differs on one link: in both directions with ``between``, in one of them with ``from`` and ``to``.

    Fields left out keep their value: that of ``wan`` or the network preset and, for one direction, that of the entry of
    both. The order of the entries does not matter.
    """

    between: tuple[str, str] | None = Field(
        default=None,
        description="The names of the two datacenters, for both directions, in either order.",
        examples=[["east", "west"]],
    )
    source: str | None = Field(
        default=None,
        alias="from",
        description="The datacenter that sends, for one direction alone; with `to`, without `between`.",
        examples=["east"],
    )
    destination: str | None = Field(
        default=None,
        alias="to",
        description="The datacenter that receives, for one direction alone.",
        examples=["west"],
    )

    @model_validator(mode="after")
    def _names_a_link(self) -> Self:
        directed = self.source is not None and self.destination is not None
        if (self.between is None) != directed or (self.source is None) != (self.destination is None):
            raise ValueError("give either between, like [east, west], or both from and to")
        return self

    @property
    def ends(self) -> tuple[str, str]:
        """The two datacenters; of one direction, first the one that sends."""
        if self.between is not None:
            return self.between
        assert self.source is not None
        assert self.destination is not None
        return self.source, self.destination


class ScaleSpec(StrictModel):
    """Factors on every WAN link, whatever gave it: a network preset, ``wan`` or ``links``. Impairments stay."""

    latency: float = Field(
        default=1,
        strict=True,
        ge=0,
        le=MAX_SCALE,
        description="Factor on the latency of every WAN link, 0 to 1000.",
        examples=[2],
    )
    rate: float = Field(
        default=1,
        strict=True,
        gt=0,
        le=MAX_SCALE,
        description="Factor on `rate` and `node_pair_rate` of every WAN link, at most 1000.",
        examples=[0.5],
    )


class TopologySpec(StrictModel):
    """The ``topology`` section of an experiment, as written."""

    datacenters: tuple[DatacenterSpec, ...] = Field(min_length=1, max_length=MAX_DATACENTERS)
    intra: IntraSpec = IntraSpec()
    wan: WanSpec | None = None
    links: tuple[LinkSpec, ...] = ()
    profile: str | None = None
    scale: ScaleSpec | None = Field(
        default=None,
        description="Factors on the figures of all WAN links, whatever gave them. Impairments stay.",
        examples=[{"latency": 2, "rate": 0.5}],
    )

    @field_validator("datacenters")
    @classmethod
    def _hosts_can_be_listed(cls, datacenters: tuple[DatacenterSpec, ...]) -> tuple[DatacenterSpec, ...]:
        hosts = sum(datacenter.hosts + datacenter.serving_hosts for datacenter in datacenters)
        if hosts > MAX_HOSTS:
            raise ValueError(f"they have {hosts} hosts together, more than {MAX_HOSTS}: give fewer")
        return datacenters
