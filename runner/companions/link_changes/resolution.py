"""Declare, while the file is read, the links over which no training goes on."""

from collections.abc import Iterator

from wanbed.ground.exclusions import Refusal
from wanbed.ground.units import format_duration
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.network.topology_spec import TopologySpec


def links_that_lose_all(spec: TopologySpec, topology: Topology) -> Iterator[Refusal]:
    """Yield the links that lose or corrupt every packet. ``topology`` was resolved from ``spec``."""
    for link in topology.wan:
        for (one, other), conditions in link.directions:
            way = f"between {one} and {other}" if link.back is None else f"from {one} to {other}"
            for each, value in conditions.impairments.items():
                if each.if_all and value >= 1:
                    yield Refusal(
                        f"{_field(spec, (one, other), each.name)}: 100% {way}: "
                        f"{each.if_all}, and nothing can be trained: give less"
                    )


def _field(spec: TopologySpec, ends: tuple[str, str], name: str) -> str:
    """Return the path in the experiment file that sets an impairment of a direction of a link."""
    entries = sorted(enumerate(spec.links), key=lambda entry: entry[1].between is not None)
    for position, link in entries:
        about = {link.ends} if link.between is None else {link.ends, link.ends[::-1]}
        if ends in about and name in link.model_fields_set:
            return f"topology.links.{position}.{name}"
    return f"topology.wan.{name}" if spec.profile is None else "topology.profile"


def links_that_stay_down(topology: Topology) -> Iterator[Refusal]:
    """Yield the links over which nothing arrives when training begins, or from some time on for good.

    Connections are opened under the first conditions, and no iteration ends without the link.
    """
    for link in topology.wan:
        for (one, other), course in link.course_by_ends.items():
            way = f"topology: the link from {one} to {other}"
            if not course.first.arrives:
                yield Refusal(
                    f"{way} is down when training begins, when its connections are opened: let it begin later"
                )
            last = course.changes[-1]
            if course.period_ns is None and not last.conditions.arrives:
                yield Refusal(
                    f"{way} is down for good from {format_duration(last.at_ns)} on, and nothing can be trained: say "
                    "when it is up again, of an event with for"
                )
