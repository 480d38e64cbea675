"""Topologies whose links change, made of the topology of an experiment."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from wanbed.testbed.network.links.wan_link import course_of
from wanbed.testbed.network.topology import Topology

Changes = Sequence[tuple[int, dict[str, Any]]]
"""Times in nanoseconds, and the fields of ``LinkConditions`` that are others than the first from then on."""


def with_courses(
    topology: Topology, there: Changes, back: Changes | None = None, *, period_ns: int | None = None
) -> Topology:
    """The network with all links changing alike, ``back`` as ``there`` unless it is given."""
    links = []
    for link in topology.wan:
        courses = (
            course_of(
                [(0, first), *((at_ns, replace(first, **changed)) for at_ns, changed in changes)], period_ns=period_ns
            )
            for (_, first), changes in zip(link.directions, (there, there if back is None else back), strict=True)
        )
        one, other = courses
        links.append(replace(link, courses=(one, other)))
    return replace(topology, wan=tuple(links))
