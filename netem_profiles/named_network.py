"""Resolve a topology whose links are given by name: with a network preset, and with traces."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from wanbed.ground.errors import InputError
from wanbed.netem_profiles.preset import load_preset
from wanbed.netem_profiles.traces import load_trace, named_traces, trace_text
from wanbed.testbed.network.links.condition_trace import ConditionTrace
from wanbed.testbed.network.links.wan_link import LinkConditions
from wanbed.testbed.network.topology import Topology, resolve_topology
from wanbed.testbed.network.topology_spec import TopologySpec


def resolve_named_network(
    spec: TopologySpec, texts: Mapping[str, str], directory: Path, seed: int
) -> tuple[Topology, dict[str, str]]:
    """Return the network, and the text of each trace that its links name.

    ``texts`` has traces, by their path as written, that are not read from files below ``directory``; ``seed`` is that
    of drawn changes. Raise InputError, one line with field and remedy, or LocatedError for a trace.
    """
    named: dict[str, str] = {}
    traces: dict[str, ConditionTrace] = {}
    for each in named_traces(spec):
        named[each.file] = trace_text(each, texts, directory)
        traces[each.key] = load_trace(each, named[each.file], texts, directory)
    preset = _preset(spec.profile, [datacenter.name for datacenter in spec.datacenters], directory)
    return resolve_topology(spec, preset, traces, seed), named


def _preset(
    profile: str | None, names: Iterable[str], directory: Path
) -> Mapping[frozenset[str], LinkConditions] | None:
    if profile is None:
        return None
    try:
        return load_preset(profile, tuple(names), relative_to=directory)
    except InputError as refusal:
        raise InputError(f"topology.profile: {str(refusal).removeprefix('profile: ')}") from None
