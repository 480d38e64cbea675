"""List what an experiment may ask for and the simulator does not model. No other place knows.

A simulation refuses none of it, and reports it by name wherever its figures stand; it is refused where simulated
times are compared with emulated ones. What no engine can run is refused by ``runner.resolve.checks.engine_limits``.
"""

from collections.abc import Collection, Iterable
from dataclasses import asdict
from typing import Any

from ground.impairments import NOT_SIMULATED
from ground.units import format_duration, format_fraction
from results.reading.not_modelled import NotModelled, gathered
from runner.experiment.model import ExperimentSpec, VariantSpec
from runner.experiment.quantities import AUTO
from testbed.network.topology import Topology

MODELLED_CONGESTION_CONTROLS = frozenset({"cubic", "reno"})
"""The two differ after a loss alone, and the simulator has none. It treats any other congestion control like them."""


def links_without(topology: Topology) -> tuple[NotModelled, ...]:
    """Return impairments of the WAN's links, written out or a profile's: each value with the links that have it."""
    found = []
    for link in topology.wan:
        for each in NOT_SIMULATED:
            if value := getattr(link.conditions.impairments, each.field):
                asked = format_duration(value) if each.is_duration else format_fraction(value)
                found.append(NotModelled(f"topology.wan.{each.name}", asked, (link.between,)))
    return gathered(found)


def simulated_without(
    spec: ExperimentSpec, topology: Topology, names: Collection[str] | None = None
) -> tuple[NotModelled, ...]:
    """Return all that a sweep point's simulation does not model; with ``names``, that of those variants."""
    found = list(links_without(topology))
    for variant in spec.variants:
        if names is None or variant.name in names:
            found += _of_variant(spec, variant)
    return gathered(found)


def _of_variant(spec: ExperimentSpec, variant: VariantSpec) -> Iterable[NotModelled]:
    transport, names = variant.transport, (variant.name,)
    # An ideal transport has no congestion control, as asked.
    if transport.model == "tcp" and transport.congestion not in MODELLED_CONGESTION_CONTROLS:
        yield NotModelled("transport.congestion", transport.congestion, variants=names)
    if transport.all_reduce != "ring":
        yield NotModelled("transport.all_reduce", transport.all_reduce, variants=names)
    sharing = spec.compute.sharing or 1
    if sharing > 1:
        yield NotModelled("compute.sharing", str(sharing), variants=names)


def left_to_times(specs: Iterable[ExperimentSpec], where: str) -> list[str]:
    """Return a line for each kind of compute that takes real time and does not run in ``where``, like "a plan"."""
    found: dict[str, None] = {}
    for compute in (spec.compute for spec in specs):
        if compute.backend.real_time:
            giver = "the experiment file" if compute.times_profile is None else "a compute profile"
            found[f"{compute.backend.title} does not run in {where}: {giver} gives its times"] = None
    return list(found)


def planned_without(spec: ExperimentSpec, topology: Topology) -> tuple[NotModelled, ...]:
    """Return what the planner did not model where it placed stages of a sweep point; () where it placed none."""
    planned = [variant.name for variant in spec.variants if variant.placement == AUTO]
    return simulated_without(spec, topology, planned) if planned else ()


def as_written(found: Iterable[NotModelled]) -> list[dict[str, Any]]:
    """Return them as JSON documents have them: ``field``, ``asked``, ``links`` and ``variants``."""
    return [
        {**asdict(each), "links": [list(ends) for ends in each.links], "variants": list(each.variants)}
        for each in found
    ]
