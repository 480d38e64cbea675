"""Describe the emulated network: datacenters of hosts, and the WAN link between every two of them.

``resolve_topology`` turns what the user writes, a ``TopologySpec``, once, into a ``Topology`` with every default
filled in and every link complete. Latencies are one-way.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from wanbed.ground.errors import InputError
from wanbed.ground.exclusions import Refusal, as_check
from wanbed.ground.impairments import UNIMPAIRED
from wanbed.testbed.network.ethernet import MTU_BYTES
from wanbed.testbed.network.links.condition_trace import ConditionTrace
from wanbed.testbed.network.links.link_resolution import resolve_links
from wanbed.testbed.network.links.wan_link import LinkConditions, LinkCourse, WanLink, link_of
from wanbed.testbed.network.price_list import PriceList, price_list
from wanbed.testbed.network.topology_spec import TopologySpec

MAX_EMULATED_HOSTS_PER_DATACENTER = 250
"""Limit of an emulated network, from its address space."""
_NAMED_HOSTS = 20


@dataclass(frozen=True)
class Host:
    """One host. ``index`` counts from 0 inside its datacenter; serving hosts come after training hosts.

    ``gpus`` is the number of GPUs for training. It is 0 on a serving host, which has ``serving_gpus`` instead. A host
    of background traffic has neither, and comes last.
    """

    name: str
    datacenter: str
    index: int
    gpus: int
    serving_gpus: int = 0

    @property
    def serves(self) -> bool:
        """True if the host serves inference and does not train."""
        return self.serving_gpus > 0

    @property
    def trains(self) -> bool:
        """True if the host can train."""
        return self.gpus > 0


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
class Topology:
    """The resolved network: every datacenter, host and link, with every default filled in.

    ``prices`` are None where nothing has one.
    """

    datacenters: tuple[Datacenter, ...]
    intra_latency_ns: int
    intra_rate_bps: int | None
    wan: tuple[WanLink, ...]
    mtu_bytes: int = MTU_BYTES
    prices: PriceList | None = None

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
        return {ends: conditions for link in self.wan for ends, conditions in link.directions}

    @cached_property
    def _course_by_ends(self) -> Mapping[tuple[str, str], LinkCourse]:
        return {ends: course for link in self.wan for ends, course in link.course_by_ends.items()}

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
        """Return the WAN link from one datacenter to the other, of one that changes as it is when training begins.

        Raise KeyError if they are the same.
        """
        return self._conditions_by_ends[one, other]

    def course(self, one: str, other: str) -> LinkCourse | None:
        """Return how the WAN link from one datacenter to the other changes during a trial, None if it does not."""
        return self._course_by_ends.get((one, other))

    def ever(self, one: str, other: str) -> tuple[LinkConditions, ...]:
        """Return every conditions that the WAN link from one datacenter to the other has, each once, the first first.

        Raise KeyError if they are the same.
        """
        course = self.course(one, other)
        return (self.conditions(one, other),) if course is None else course.distinct

    def at(self, time_ns: int) -> "Topology":
        """Return the same network with every link as it is at a time since training began, for ever."""
        return replace(self, wan=tuple(link.at(time_ns) for link in self.wan))

    @property
    def changes(self) -> bool:
        """True if any WAN link changes during a trial."""
        return bool(self._course_by_ends)

    def path(self, one: str, other: str) -> LinkConditions:
        """Return the link from hosts of one datacenter to the other's: the WAN's, or the inner network's within one."""
        return (
            LinkConditions(self.intra_latency_ns, self.intra_rate_bps) if one == other else self.conditions(one, other)
        )

    def rtt_ns(self, one: str, other: str) -> int:
        """Return the round-trip time between hosts of two datacenters: the latencies of both directions."""
        return self.path(one, other).latency_ns + self.path(other, one).latency_ns

    def pair_in_flight_bytes(self, one: str, other: str) -> float | None:
        """Return the bytes that a node pair has in flight at its rate, rate x RTT; None without a rate."""
        rate_bps = self.path(one, other).pair_rate_bps
        return None if rate_bps is None else rate_bps / 8 * self.rtt_ns(one, other) / 1e9

    def line_rate_bps(self, one: str, other: str) -> int | None:
        """Return the smallest rate on the path from hosts of one datacenter to the other's, None if all are unlimited.

        The rates are those of the node pair, of the trunk, and of the destination host's port.
        """
        rates = [rate for rate in (self.path(one, other).pair_rate_bps, self.intra_rate_bps) if rate is not None]
        return min(rates, default=None)

    def without(self, hosts: Collection[str]) -> "Topology":
        """Return the network that is left without these hosts: datacenters that have none, and their links, are gone.

        What is left keeps its index, and so its address.
        """
        datacenters = tuple(
            replace(each, hosts=tuple(host for host in each.hosts if host.name not in hosts))
            for each in self.datacenters
        )
        left = {each.name for each in datacenters if each.hosts}
        return replace(
            self,
            datacenters=tuple(each for each in datacenters if each.hosts),
            wan=tuple(link for link in self.wan if left.issuperset(link.between)),
        )

    def dilated(self, factor: float) -> "Topology":
        """Return the same network in dilated time: every delay times ``factor``, every rate divided by it."""
        inside = LinkConditions(self.intra_latency_ns, self.intra_rate_bps).dilated(factor)
        return replace(
            self,
            wan=tuple(link.dilated(factor) for link in self.wan),
            intra_latency_ns=inside.latency_ns,
            intra_rate_bps=inside.rate_bps,
        )


def with_flow_hosts(topology: Topology, flows: Sequence[tuple[str, str]]) -> Topology:
    """Return the network with a host more at both ends of each flow, a pair of datacenters: ``<name>-background-<n>``.

    ``n`` is the flow's position. Raise InputError if a host has that name already, KeyError for an unknown datacenter.
    """
    hosts = {each.name: list(each.hosts) for each in topology.datacenters}
    taken = {host.name for host in topology.hosts}
    for position, ends in enumerate(flows):
        for name in ends:
            host = Host(flow_host(name, position), name, len(hosts[name]), 0)
            if host.name in taken:
                raise InputError(
                    f"background.{position}: its host would be called {host.name}, as another one is: rename that "
                    "datacenter"
                )
            hosts[name].append(host)
    return replace(
        topology, datacenters=tuple(replace(each, hosts=tuple(hosts[each.name])) for each in topology.datacenters)
    )


def flow_host(datacenter: str, position: int) -> str:
    """Return the name of the host of a flow in a datacenter."""
    return f"{datacenter}-background-{position}"


def more_hosts_than_addresses(topology: Topology) -> Iterator[Refusal]:
    """Yield the datacenters that have more hosts than an emulated one has addresses."""
    for position, datacenter in enumerate(topology.datacenters):
        if len(datacenter.hosts) > MAX_EMULATED_HOSTS_PER_DATACENTER:
            yield Refusal(
                f"topology.datacenters.{position}.hosts: {len(datacenter.hosts)} hosts, where an emulated datacenter "
                f"has {MAX_EMULATED_HOSTS_PER_DATACENTER} at most: take fewer, or simulate"
            )


check_can_be_emulated = as_check(more_hosts_than_addresses)
"""Raise InputError if a datacenter has more hosts than addresses."""


def resolve_topology(
    spec: TopologySpec,
    preset: Mapping[frozenset[str], LinkConditions] | None = None,
    traces: Mapping[str, ConditionTrace] | None = None,
    seed: int = 0,
) -> Topology:
    """Fill in every default.

    ``preset`` has the link of each pair of datacenters and is given if and only if ``spec.profile`` is set; ``traces``
    and ``seed`` are those of ``resolve_links``. Raise InputError for names that clash, for links that
    ``resolve_links`` refuses, and for prices that only some datacenters have.
    """
    names = [datacenter.name for datacenter in spec.datacenters]
    for position, name in enumerate(names):
        where = f"topology.datacenters.{position}.name"
        if name in names[:position]:
            raise InputError(f"{where}: {name!r} is given twice, give each its own name")
        if alike := [each for each in names[:position] if each.casefold() == name.casefold()]:
            raise InputError(
                f"{where}: {name!r} and {alike[0]!r} are one name where hosts are looked up: give names that differ by "
                "more than case"
            )
    links = resolve_links(spec, preset, traces, seed)
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
    owners: dict[str, str] = {}
    for host in (host for datacenter in datacenters for host in datacenter.hosts):
        if (other := owners.setdefault(host.name, host.datacenter)) != host.datacenter:
            raise InputError(
                f"topology.datacenters: a host of {other!r} and one of {host.datacenter!r} would both be called "
                f"{host.name!r}: rename one of the datacenters"
            )
    return Topology(
        datacenters,
        spec.intra.latency,
        spec.intra.rate,
        links,
        spec.mtu,
        price_list(spec),
    )


def as_begun(topology: Topology) -> Topology:
    """Return the network as it is when training begins, and as it would stay if no link changed."""
    if not topology.changes:
        return topology
    return replace(topology, wan=tuple(replace(link, courses=(None, None)) for link in topology.wan))


def at_best(topology: Topology) -> Topology:
    """Return a network in which every link always has the best that it ever has: least latency and highest rates.

    Jitter may shorten a latency, which is counted. Links that do not change stay as they are.
    """
    if not topology.changes:
        return topology
    return replace(topology, wan=tuple(_at_best(link) for link in topology.wan))


def _at_best(link: WanLink) -> WanLink:
    there, back = (
        conditions if course is None else _best(course)
        for (_, conditions), course in zip(link.directions, link.courses, strict=True)
    )
    return link_of(link.between, there, back)


def _best(course: LinkCourse) -> LinkConditions:
    every = course.distinct
    return LinkConditions(
        min(max(each.latency_ns - each.impairments.delay_spread_ns, 0) for each in every),
        highest([each.rate_bps for each in every]),
        highest([each.node_pair_rate_bps for each in every]),
        UNIMPAIRED,
    )


def highest(rates: Sequence[int | None]) -> int | None:
    """Return the highest of some rates, of which None is unlimited."""
    limited = [rate for rate in rates if rate is not None]
    return None if len(limited) < len(rates) else max(limited)
