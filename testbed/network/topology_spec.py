"""Define the section ``topology`` of the experiment file. Latencies are one-way."""

import re
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from wanbed.ground.errors import shown
from wanbed.ground.strict_model import StrictModel, is_none
from wanbed.ground.units import RateBps, SizeBytes, UsdPerGB, UsdPerGpuHour, format_size
from wanbed.testbed.network.ethernet import MTU_BYTES
from wanbed.testbed.network.links.link_spec import (
    DelayNs,
    EventSpec,
    FiguresSpec,
    GenerateSpec,
    Loop,
    WrittenTrace,
    without_defaults,
)

MAX_HOSTS_PER_DATACENTER = 65_536
MAX_DATACENTERS = 250
_MAX_SCALE = 1000
_LEAST_MTU_BYTES, _MOST_MTU_BYTES = 576, 9216
_MAX_EVENTS = 1000
MAX_HOSTS = 2**20
"""Limit of all datacenters together."""


_NAME = "[A-Za-z0-9][A-Za-z0-9_.-]{0,39}"


def _check_name(name: str) -> str:
    if re.fullmatch(_NAME, name) is None:
        raise ValueError(
            f"{shown(name)} is not a valid name: give at most 40 letters, digits, dots, dashes and underscores"
        )
    return name


Name = Annotated[
    str, AfterValidator(_check_name), WithJsonSchema({"title": "name", "type": "string", "pattern": f"^{_NAME}$"})
]


class DatacenterSpec(StrictModel):
    """One datacenter and its hosts."""

    name: Name = Field(
        description="Name of the datacenter: letters, digits, dots, dashes and underscores, 40 at most. Its hosts are "
        "called `<name>-0`, `<name>-1` and so on. With a network preset it is the name of a region.",
        examples=["east"],
    )
    hosts: int = Field(
        strict=True,
        ge=1,
        le=MAX_HOSTS_PER_DATACENTER,
        description="Number of hosts that train. All datacenters have 1048576 hosts together at most.",
        examples=[4],
    )
    gpus_per_host: int = Field(
        default=1,
        strict=True,
        ge=1,
        le=64,
        description="Number of GPUs of each host, serving hosts included.",
        examples=[8],
    )
    serving_hosts: int = Field(
        default=0,
        strict=True,
        ge=0,
        le=MAX_HOSTS_PER_DATACENTER,
        description="Number of additional hosts that do not train, called `<name>-serving-0` and so on. Inference "
        "decodes there, and their GPUs can form a pool that only prefills (`pool` of a variant).",
        examples=[1],
    )
    gpu_price: UsdPerGpuHour | None = Field(
        default=None,
        exclude_if=is_none,
        description="Price of an hour of one GPU that trains, in US dollars. All datacenters have one, or none.",
        examples=["2.10USD/h"],
    )
    egress_price: UsdPerGB | None = Field(
        default=None,
        exclude_if=is_none,
        description="Price of what is sent to other datacenters, in US dollars per GB (10^9 bytes), GiB or TB. All "
        "datacenters have one, or none.",
        examples=["0.05USD/GB"],
    )


class IntraSpec(StrictModel):
    """The network inside every datacenter."""

    latency: DelayNs = Field(default=50_000, description="One-way latency from host to host.", examples=["100us"])
    rate: RateBps = Field(
        default=None, description="Rate of each host's port, in each direction.", examples=["100Gbit"]
    )


class WanSpec(FiguresSpec):
    """Latency, rates and impairments of a WAN link, and how they change while training runs."""

    trace: WrittenTrace | None = Field(
        default=None,
        description="How the link changes: the path of a CSV file, relative to the experiment file, with the column "
        "`t_s` and any of `latency`, `rate`, `node_pair_rate`, `jitter`, `loss` and `up`. A column left out and an "
        "empty cell keep the constant value. The last row holds.",
        examples=["drift.csv", {"mahimahi": "driving.down"}],
    )
    loop: Loop = Field(
        default=False,
        description="Whether `trace` or `generate` of the same entry begins anew: a duration is the period, and `true` "
        "takes the time of the last row, or the length.",
        examples=[True, "10min"],
    )
    events: tuple[EventSpec, ...] = Field(
        default=(),
        max_length=_MAX_EVENTS,
        description="Changes at given times, above those of `trace` and `generate`.",
        examples=[[{"at": "30s", "for": "5s", "down": True}, {"at": "60s", "rate": "1Gbit"}]],
    )
    generate: GenerateSpec | None = Field(
        default=None,
        description="Changes that are drawn from `seed` and the names of the link's ends: synthetic, and called so in "
        "reports.",
        examples=[{"length": "120s", "outages": {"mtbf": "40s", "mttr": "2s"}}],
    )


class PairSpec(FiguresSpec):
    """The link of one pair of datacenters, alike in both directions."""

    between: tuple[str, str] = Field(
        description="The names of the two datacenters, in either order. Each pair has one entry at most.",
        examples=[["east", "west"]],
    )


class LinkSpec(WanSpec):
    """The differences of one link: in both directions with ``between``, in one of them with ``from`` and ``to``.

    Fields left out keep their value: that of ``wan`` or the network preset and, for one direction, that of the entry of
    both. A figure that an entry gives is no longer changed by the ``trace``, ``generate`` or ``events`` of those. The
    order of the entries does not matter.
    """

    model_config = ConfigDict(json_schema_extra=without_defaults)

    between: tuple[str, str] | None = Field(
        default=None,
        description="The names of the two datacenters, in either order, for both directions. Each pair has one entry "
        "at most.",
        examples=[["east", "west"]],
    )
    source: str | None = Field(
        default=None, alias="from", description="The sending datacenter, for one direction alone.", examples=["east"]
    )
    destination: str | None = Field(
        default=None, alias="to", description="The receiving datacenter, for one direction alone.", examples=["west"]
    )
    egress_price: UsdPerGB | None = Field(
        default=None,
        exclude_if=is_none,
        description="Price of what is sent over this link, where it is not the sending datacenter's.",
        examples=["0.02USD/GB"],
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


def _check_mtu(mtu_bytes: int) -> int:
    if not _LEAST_MTU_BYTES <= mtu_bytes <= _MOST_MTU_BYTES:
        least, most = (format_size(each) for each in (_LEAST_MTU_BYTES, _MOST_MTU_BYTES))
        raise ValueError(f"{format_size(mtu_bytes)} is not from {least} to {most}: give the size of an IP packet")
    return mtu_bytes


def _is_usual(mtu_bytes: int) -> bool:
    return mtu_bytes == MTU_BYTES


class ScaleSpec(StrictModel):
    """Factors on every WAN link, whatever gave it: a network preset, ``wan`` or ``links``. Impairments stay."""

    latency: float = Field(
        default=1, strict=True, ge=0, le=_MAX_SCALE, description="Factor on every WAN link's latency.", examples=[2]
    )
    rate: float = Field(
        default=1,
        strict=True,
        gt=0,
        le=_MAX_SCALE,
        description="Factor on every WAN link's `rate` and `node_pair_rate`.",
        examples=[0.5],
    )


class TopologySpec(StrictModel):
    """Datacenters and the network between them.

    In place of the section, the path of a YAML file with its content can be given, relative to the experiment file.
    """

    datacenters: tuple[DatacenterSpec, ...] = Field(
        min_length=1,
        max_length=MAX_DATACENTERS,
        description="The datacenters, in an order along which pipelines are placed. Every two of them are linked.",
        examples=[[{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}]],
    )
    intra: IntraSpec = Field(
        default=IntraSpec(),
        description="The network inside every datacenter.",
        examples=[{"latency": "50us", "rate": "100Gbit"}],
    )
    wan: WanSpec | None = Field(
        default=None,
        description="The link between every two datacenters. Two or more datacenters need it, a `profile`, or an entry "
        "of `links` for every pair.",
        examples=[{"latency": "40ms", "rate": "10Gbit", "node_pair_rate": "5Gbit"}],
    )
    links: tuple[LinkSpec, ...] = Field(
        default=(),
        description="Links that differ from `wan` or the network preset, by the pair of datacenters that they join.",
        examples=[[{"between": ["east", "west"], "latency": "60ms"}]],
    )
    profile: str | None = Field(
        default=None,
        description="Network preset that replaces `wan`: a known name, or the path of its YAML file, relative to the "
        "experiment file. Datacenters bear the names of its regions.",
        examples=["azure", "./my-wan.yaml"],
    )
    mtu: Annotated[SizeBytes, AfterValidator(_check_mtu)] = Field(
        default=MTU_BYTES,
        exclude_if=_is_usual,
        description="Size of the largest IP packet on every interface and link, 576B to 9216B. Of a full frame, "
        "14 bytes more, TCP carries 52 bytes less.",
        examples=["9001B"],
    )
    scale: ScaleSpec | None = Field(
        default=None,
        exclude_if=is_none,
        description="Factors on all WAN links together.",
        examples=[{"latency": 2, "rate": 0.5}],
    )

    @field_validator("datacenters")
    @classmethod
    def _hosts_can_be_listed(cls, datacenters: tuple[DatacenterSpec, ...]) -> tuple[DatacenterSpec, ...]:
        hosts = sum(datacenter.hosts + datacenter.serving_hosts for datacenter in datacenters)
        if hosts > MAX_HOSTS:
            raise ValueError(f"they have {hosts} hosts together, more than {MAX_HOSTS}: give fewer")
        return datacenters
