"""Say which known misses apply to what is simulated."""

from collections.abc import Mapping
from typing import Any

from wanbed.results.reading.known_misses import KnownMiss
from wanbed.runner.known_misses.miss_classes import MISS_CLASSES
from wanbed.runner.known_misses.wan_traffic import WanTraffic
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.trainings.program.resolution.program_variant import ProgramVariant
from wanbed.testbed.network.topology import Topology


def known_misses(point: SweepPoint) -> tuple[KnownMiss, ...]:
    """Return what applies to the simulation of any variant of a sweep point, each once, in the order of the classes."""
    found = {miss for variant in point.variants for miss in misses_of(point.topology, variant)}
    return tuple(each.miss for each in MISS_CLASSES if each.miss in found)


def misses_of(topology: Topology, variant: ResolvedVariant) -> tuple[KnownMiss, ...]:
    """Return what applies to the simulation of one variant, in the order of the classes.

    An ideal transport has no TCP that could be off: nothing applies to it.
    """
    if isinstance(variant, ProgramVariant) or variant.transport.model == "ideal":
        return ()
    traffic = WanTraffic(topology, variant)
    return tuple(each.miss for each in MISS_CLASSES if each.applies(traffic))


def misses_by_variant(point: SweepPoint) -> dict[str, list[str]]:
    """Return the names of the misses that apply to each variant of a sweep point that any apply to."""
    found = {variant.name: [miss.name for miss in misses_of(point.topology, variant)] for variant in point.variants}
    return {variant: names for variant, names in found.items() if names}


def known_miss_facts(topology: Topology, variant: ResolvedVariant) -> Mapping[str, Any]:
    """Return the misses that apply to a variant as an entry of a simulated trial's facts; {} for none."""
    found = misses_of(topology, variant)
    return {"known_misses": [each.document() for each in found]} if found else {}
