"""Check, while the file is read, that training goes on over links that change."""

from wanbed.ground.errors import InputError
from wanbed.ground.units import format_duration
from wanbed.testbed.network.topology import Topology


def check_changing_links_train(topology: Topology) -> None:
    """Raise InputError for a link over which nothing arrives when training begins, or from some time on for good.

    Connections are opened under the first conditions, and no iteration ends without the link.
    """
    for link in topology.wan:
        for (one, other), course in link.course_by_ends.items():
            way = f"topology: the link from {one} to {other}"
            if not course.first.arrives:
                raise InputError(
                    f"{way} is down when training begins, when its connections are opened: let it begin later"
                )
            last = course.changes[-1]
            if course.period_ns is None and not last.conditions.arrives:
                raise InputError(
                    f"{way} is down for good from {format_duration(last.at_ns)} on, and nothing can be trained: say "
                    "when it is up again, of an event with for"
                )
