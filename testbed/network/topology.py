"""Describe the emulated network: datacenters of hosts, and the WAN link between every two of them.

``resolve_topology`` turns what the user writes, a ``TopologySpec``, once, into a ``Topology`` with every default
filled in and every link complete. Latencies are one-way.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from ground.impairments import IMPAIRMENTS, UNIMPAIRED, Impairments
from ground.strict_model import InputError
from ground.units import format_duration
from testbed.network.topology_spec import LinkSpec, TopologySpec, WanSpec

MAX_EMULATED_HOSTS_PER_DATACENTER = 250
"""Limit of an emulated network, from its address space."""
_NAMED_HOSTS = 20


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
class Host:
    """One GPU host. ``index`` counts from 0 inside its datacenter; serving hosts come after training hosts.

    ``gpus`` is the number of GPUs for training. It is 0 on a serving host, which has ``serving_gpus`` instead.
    """

    name: str
    datacenter: str
    index: int
    gpus: int
    serving_gpus: int = 0

    @property
    def serves(self) -> bool:
        """Whether the host serves inference and does not train."""
        return self.serving_gpus > 0


@dataclass(frozen=True)
class Datacenter:
    """One datacenter; ``index`` is its position in the topology."""

    name: str
    index: int
    hosts: tuple[Host, ...]

    @property
    def serving_hosts(self) -> tuple[Host, ...]:
        """The hosts that do not train; they are the last of ``hosts``."""
        return tuple(host for host in self.hosts if host.serves)


@dataclass(frozen=True)
class WanLink:
    """The link between two datacenters; ``between`` has their names in the topology's order."""

    between: tuple[str, str]
    conditions: LinkConditions


@dataclass(frozen=True)
class Topology:
    """The resolved network: every datacenter, host and link, with every default filled in."""

    datacenters: tuple[Datacenter, ...]
    intra_latency_ns: int
    intra_rate_bps: int | None
    wan: tuple[WanLink, ...]

    @cached_property
    def hosts(self) -> tuple[Host, ...]:
        """Every host, datacenter by datacenter."""
        return tuple(host for datacenter in self.datacenters for host in datacenter.hosts)

    @cached_property
    def _host_by_name(self) -> Mapping[str, Host]:
        return {host.name: host for host in self.hosts}

    @cached_property
    def _datacenter_by_name(self) -> Mapping[str, Datacenter]:
        return {datacenter.name: datacenter for datacenter in self.datacenters}

    @cached_property
    def _conditions_by_ends(self) -> Mapping[tuple[str, str], LinkConditions]:
        return {ends: link.conditions for link in self.wan for ends in (link.between, link.between[::-1])}

    def host(self, name: str) -> Host:
        """Return the host of that name. Raise InputError with the names of the topology's hosts if there is none."""
        if name in self._host_by_name:
            return self._host_by_name[name]
        names = list(self._host_by_name)
        known = ", ".join(names[:_NAMED_HOSTS]) + (
            f" and {len(names) - _NAMED_HOSTS} more" if len(names) > _NAMED_HOSTS else ""
        )
        raise InputError(f"host {name!r} is not in the topology: it has {known}")

    def datacenter(self, name: str) -> Datacenter:
        """Return the datacenter of that name. Raise KeyError if there is none."""
        return self._datacenter_by_name[name]

    def conditions(self, one: str, other: str) -> LinkConditions:
        """Return the WAN link between two datacenters, in either order. Raise KeyError if they are the same."""
        return self._conditions_by_ends[one, other]

    def path(self, one: str, other: str) -> LinkConditions:
        """Return the link between hosts of two datacenters: the WAN's, or the inner network's if they are the same."""
        return (
            LinkConditions(self.intra_latency_ns, self.intra_rate_bps) if one == other else self.conditions(one, other)
        )

    def line_rate_bps(self, one: str, other: str) -> int | None:
        """Return the smallest rate on the path between hosts of two datacenters, None if all are unlimited.

        The rates are those of the node pair, of the trunk, and of the destination host's port.
        """
        rates = [rate for rate in (self.path(one, other).pair_rate_bps, self.intra_rate_bps) if rate is not None]
        return min(rates, default=None)

    def dilated(self, factor: float) -> "Topology":
        """Return the same network in dilated time: every delay times ``factor``, every rate divided by it."""

        def slower(rate_bps: int | None) -> int | None:
            return None if rate_bps is None else max(1, round(rate_bps / factor))

        links = tuple(
            replace(
                link,
                conditions=replace(
                    link.conditions,
                    latency_ns=round(link.conditions.latency_ns * factor),
                    impairments=link.conditions.impairments.dilated(factor),
                    rate_bps=slower(link.conditions.rate_bps),
                    node_pair_rate_bps=slower(link.conditions.node_pair_rate_bps),
                ),
            )
            for link in self.wan
        )
        return replace(
            self,
            wan=links,
            intra_latency_ns=round(self.intra_latency_ns * factor),
            intra_rate_bps=slower(self.intra_rate_bps),
        )


def check_can_be_emulated(topology: Topology) -> None:
    """Raise InputError if a datacenter has more hosts than addresses."""
    for position, datacenter in enumerate(topology.datacenters):
        if len(datacenter.hosts) > MAX_EMULATED_HOSTS_PER_DATACENTER:
            raise InputError(
                f"topology.datacenters.{position}.hosts: {len(datacenter.hosts)} hosts, where an emulated datacenter "
                f"has {MAX_EMULATED_HOSTS_PER_DATACENTER} at most: take fewer, or simulate"
            )


def resolve_topology(spec: TopologySpec, preset: Mapping[frozenset[str], LinkConditions] | None = None) -> Topology:
    """Fill in every default.

    ``preset`` has the link of each pair of datacenters and is given if and only if ``spec.profile`` is set. Raise
    InputError for names that clash, links between unknown datacenters, two entries for one pair, pairs that the preset
    does not cover, and a jitter above the latency.
    """
    names = [datacenter.name for datacenter in spec.datacenters]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise InputError(f"topology.datacenters.{position}.name: {name!r} is given twice, give each its own name")
    default = conditions_of(spec.wan or WanSpec())
    overrides: dict[frozenset[str], LinkSpec] = {}
    for position, link in enumerate(spec.links):
        where = f"topology.links.{position}.between"
        pair = frozenset(link.between)
        for end in link.between:
            if end not in names:
                raise InputError(f"{where}: no datacenter {end!r}, there are {', '.join(names)}")
        if len(pair) == 1:
            raise InputError(f"{where}: a link joins two different datacenters, see intra for the network inside one")
        if pair in overrides:
            raise InputError(f"{where}: this pair has an entry already, merge the two")
        overrides[pair] = link
    if preset is not None and spec.wan is not None:
        raise InputError("topology.profile: a network preset replaces wan, leave one of them out")

    def resolved(one: str, other: str) -> LinkConditions:
        pair = frozenset((one, other))
        base = default if preset is None else preset.get(pair)
        if base is None:
            raise InputError(
                f"topology.datacenters: the network preset {spec.profile!r} has no figures for {one} and {other}, "
                "name the datacenters after its regions"
            )
        conditions = conditions_of(overrides[pair], base) if pair in overrides else base
        for each, value in conditions.impairments.items():
            if each.is_duration and value > conditions.latency_ns:
                raise InputError(
                    f"topology: the {each.label} between {one} and {other}, {format_duration(value)}, is above "
                    f"their latency of {format_duration(conditions.latency_ns)}: no packet arrives before it was sent"
                )
        return conditions

    datacenters = tuple(
        Datacenter(
            entry.name,
            index,
            (
                *(Host(f"{entry.name}-{host}", entry.name, host, entry.gpus_per_host) for host in range(entry.hosts)),
                *(
                    Host(f"{entry.name}-serving-{host}", entry.name, entry.hosts + host, 0, entry.gpus_per_host)
                    for host in range(entry.serving_hosts)
                ),
            ),
        )
        for index, entry in enumerate(spec.datacenters)
    )
    hosts = [host.name for datacenter in datacenters for host in datacenter.hosts]
    if len(set(hosts)) != len(hosts):
        raise InputError("topology.datacenters: two hosts get one name, rename a datacenter that ends in a number")
    return Topology(
        datacenters,
        spec.intra.latency,
        spec.intra.rate,
        tuple(WanLink(pair, resolved(*pair)) for pair in combinations(names, 2)),
    )


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
