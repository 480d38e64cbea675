"""Resolve the WAN links of a topology: what a preset, ``wan``, ``links`` and ``scale`` give together."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations

from wanbed.ground.errors import InputError
from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.ground.units import MAX_RATE_BPS, format_duration, format_rate
from wanbed.testbed.network.links.condition_trace import ConditionTrace
from wanbed.testbed.network.links.course_resolution import Courses, Level
from wanbed.testbed.network.links.link_spec import MAX_DELAY_NS, conditions_of
from wanbed.testbed.network.links.wan_link import LinkConditions, LinkCourse, WanLink, link_of
from wanbed.testbed.network.topology_spec import LinkSpec, ScaleSpec, TopologySpec, WanSpec

_Ends = frozenset[str] | tuple[str, str]
"""Both directions of a pair of datacenters, or the direction from the first to the second."""


def resolve_links(
    spec: TopologySpec,
    preset: Mapping[frozenset[str], LinkConditions] | None,
    traces: Mapping[str, ConditionTrace] | None = None,
    seed: int = 0,
) -> tuple[WanLink, ...]:
    """Return the link of every two datacenters.

    ``preset`` or ``wan`` gives the first figures. Then come the entries of ``links`` for both directions, those for one
    direction, and last ``scale``. ``traces`` has the trace of every ``TraceSpec.key``, ``seed`` is that of drawn
    changes. Raise InputError for links between unknown datacenters, two entries for one pair or direction, pairs that
    the preset does not cover, changes that ``course_by_levels`` refuses, a jitter above the latency at any time, and a
    scale without effect or beyond the limits of a link.
    """
    names = [datacenter.name for datacenter in spec.datacenters]
    default = conditions_of(spec.wan or WanSpec())
    entries, pairs = _entries(spec, names), combinations(names, 2)
    if preset is not None and spec.wan is not None:
        raise InputError("topology.profile: a network preset replaces wan: leave profile or wan out")
    courses = Courses(traces or {}, seed)

    def resolved(one: str, other: str) -> tuple[LinkConditions, LinkCourse | None]:
        base = default if preset is None else preset.get(frozenset((one, other)))
        if base is None:
            raise InputError(
                f"topology.datacenters: the network preset {spec.profile!r} has no figures for {one} and {other}, "
                "name the datacenters after its regions"
            )
        link = " - ".join(sorted((one, other)))
        levels = [] if spec.wan is None else [Level(spec.wan, "topology.wan", link)]
        for ends, name in ((frozenset((one, other)), link), ((one, other), f"{one} to {other}")):
            if ends in entries:
                position, entry = entries[ends]
                base = conditions_of(entry, base)
                levels.append(Level(entry, f"topology.links.{position}", name))
        return courses.of(base, levels)

    def resolved_link(one: str, other: str) -> WanLink:
        (there, course_there), (back, course_back) = resolved(one, other), resolved(other, one)
        return link_of((one, other), there, back, (course_there, course_back))

    links = tuple(resolved_link(one, other) for one, other in pairs)
    if spec.scale is not None:
        links = _scaled(links, spec.scale)
    for link in links:
        _check_jitter(link)
    return links


def _entries(spec: TopologySpec, names: list[str]) -> dict[_Ends, tuple[int, LinkSpec]]:
    """Return the entries of ``links``, with their positions, by what they are about."""
    entries: dict[_Ends, tuple[int, LinkSpec]] = {}
    for position, link in enumerate(spec.links):
        directed = link.between is None
        where = f"topology.links.{position}"
        for end, field in zip(link.ends, ("from", "to") if directed else ("between",) * 2, strict=True):
            if end not in names:
                raise InputError(f"{where}.{field}: no datacenter {end!r}, there are {', '.join(names)}")
        where = f"{where}.{'to' if directed else 'between'}"
        if link.ends[0] == link.ends[1]:
            raise InputError(f"{where}: a link joins two different datacenters, see intra for the network inside one")
        about = link.ends if directed else frozenset(link.ends)
        if about in entries:
            what = "direction" if directed else "pair"
            raise InputError(f"{where}: this {what} has an entry already, merge the two")
        entries[about] = position, link
    return entries


def _scaled(links: tuple[WanLink, ...], scale: ScaleSpec) -> tuple[WanLink, ...]:
    scaled = tuple(link.changed(partial(_scaled_conditions, scale=scale)) for link in links)
    every = [conditions for link in links for _, conditions, _ in link.every_conditions()]
    for name, factor, configured in (
        ("latency", scale.latency, any(conditions.latency_ns for conditions in every)),
        ("rate", scale.rate, any(conditions.pair_rate_bps is not None for conditions in every)),
    ):
        none = f"no WAN link has a {name} to scale"
        check_exclusions(Exclusion(f"topology.scale.{name}", none, "give one", when=factor != 1 and not configured))
    return scaled


def _scaled_conditions(conditions: LinkConditions, scale: ScaleSpec) -> LinkConditions:
    latency_ns = round(conditions.latency_ns * scale.latency)
    if latency_ns > MAX_DELAY_NS:
        raise InputError(
            f"topology.scale.latency: {scale.latency:g} times {format_duration(conditions.latency_ns)} is above the "
            f"{format_duration(MAX_DELAY_NS)} that a link may have: give less"
        )

    def scaled_bps(rate_bps: int | None) -> int | None:
        if rate_bps is None:
            return None
        if not 1 <= rate_bps * scale.rate <= MAX_RATE_BPS:
            raise InputError(
                f"topology.scale.rate: {scale.rate:g} times {format_rate(rate_bps)} is not within 1bit and "
                f"{format_rate(MAX_RATE_BPS)}: give a rate scale nearer to 1"
            )
        return round(rate_bps * scale.rate)

    return replace(
        conditions,
        latency_ns=latency_ns,
        rate_bps=scaled_bps(conditions.rate_bps),
        node_pair_rate_bps=scaled_bps(conditions.node_pair_rate_bps),
    )


def _check_jitter(link: WanLink) -> None:
    for (one, other), conditions, at_ns in link.every_conditions():
        way = f"between {one} and {other}" if link.back is None else f"from {one} to {other}"
        when = "" if at_ns is None else f" at {format_duration(at_ns)}"
        for each, value in conditions.impairments.items():
            if each.is_duration and value > conditions.latency_ns:
                raise InputError(
                    f"topology: the {each.label} {way}{when}, {format_duration(value)}, is above their latency of "
                    f"{format_duration(conditions.latency_ns)}: no packet arrives before it was sent"
                )
