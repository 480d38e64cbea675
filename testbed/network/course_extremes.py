"""Replace links that change by constant ones: as they are when training begins, or as good as they ever are."""

from collections.abc import Sequence
from dataclasses import replace

from wanbed.ground.impairments import UNIMPAIRED
from wanbed.testbed.network.links.link_conditions import LinkConditions
from wanbed.testbed.network.links.link_course import LinkCourse
from wanbed.testbed.network.links.wan_link import WanLink, link_of
from wanbed.testbed.network.topology import Topology


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
