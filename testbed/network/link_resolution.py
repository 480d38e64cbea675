"""Resolve the WAN links of a topology: what a preset, ``wan``, ``links`` and ``scale`` give together."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

from ground.strict_model import InputError
from ground.units import MAX_RATE_BPS, format_duration, format_rate
from testbed.network.link_conditions import LinkConditions, WanLink, conditions_of
from testbed.network.topology_spec import MAX_DELAY_NS, LinkSpec, ScaleSpec, TopologySpec, WanSpec


def resolve_links(spec: TopologySpec, preset: Mapping[frozenset[str], LinkConditions] | None) -> tuple[WanLink, ...]:
    """Return the link of every two datacenters: ``preset`` or ``wan``, then ``links``, then ``scale``.

    Raise InputError for links between unknown datacenters, two entries for one pair, pairs that the preset does not
    cover, a jitter above the latency, and a scale without effect or beyond the limits of a link.
    """
    names = [datacenter.name for datacenter in spec.datacenters]
    default = conditions_of(spec.wan or WanSpec())
    entries = _entries(spec, names)
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
        return conditions_of(entries[pair], base) if pair in entries else base

    links = tuple(WanLink(pair, resolved(*pair)) for pair in combinations(names, 2))
    if spec.scale is not None:
        links = _scaled(links, spec.scale)
    for link in links:
        _check_jitter(link)
    return links


def _entries(spec: TopologySpec, names: list[str]) -> dict[frozenset[str], LinkSpec]:
    """Return the entry of ``links`` of each pair that has one."""
    entries: dict[frozenset[str], LinkSpec] = {}
    for position, link in enumerate(spec.links):
        where = f"topology.links.{position}.between"
        pair = frozenset(link.between)
        for end in link.between:
            if end not in names:
                raise InputError(f"{where}: no datacenter {end!r}, there are {', '.join(names)}")
        if len(pair) == 1:
            raise InputError(f"{where}: a link joins two different datacenters, see intra for the network inside one")
        if pair in entries:
            raise InputError(f"{where}: this pair has an entry already, merge the two")
        entries[pair] = link
    return entries


def _scaled(links: tuple[WanLink, ...], scale: ScaleSpec) -> tuple[WanLink, ...]:
    scaled = tuple(replace(link, conditions=_scaled_conditions(link.conditions, scale)) for link in links)
    for name, factor, configured in (
        ("latency", scale.latency, any(link.conditions.latency_ns for link in links)),
        ("rate", scale.rate, any(link.conditions.pair_rate_bps is not None for link in links)),
    ):
        if factor != 1 and not configured:
            raise InputError(f"topology.scale.{name}: no WAN link has a {name} to scale: give one, or leave it out")
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
    one, other = link.between
    for each, value in link.conditions.impairments.items():
        if each.is_duration and value > link.conditions.latency_ns:
            raise InputError(
                f"topology: the {each.label} between {one} and {other}, {format_duration(value)}, is above "
                f"their latency of {format_duration(link.conditions.latency_ns)}: no packet arrives before it was sent"
            )
