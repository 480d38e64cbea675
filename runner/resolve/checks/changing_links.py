"""Check, while the file is read, that the engine can follow how links change. The only place that says which can."""

from collections.abc import Mapping

from ground.strict_model import InputError
from ground.units import format_duration
from runner.experiment.experiment_spec import ExperimentSpec
from testbed.network.topology import Topology

_CANNOT: Mapping[str, str] = {
    "rack": "a rack holds links as they are when training begins",
}
"""The engines that do not follow the course of a link, with the reason that their users read."""


def check_changes(spec: ExperimentSpec, topology: Topology) -> None:
    """Raise InputError for links that change, if the engine cannot follow them or they end up down for good."""
    if not topology.changes:
        return
    if spec.engine in _CANNOT:
        raise InputError(
            f"topology: the link {_first_that_changes(topology)} changes, and {_CANNOT[spec.engine]}: leave trace, "
            "events and generate out"
        )


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


def _first_that_changes(topology: Topology) -> str:
    ends = next(ends for link in topology.wan for ends in link.course_by_ends)
    return f"from {ends[0]} to {ends[1]}"
