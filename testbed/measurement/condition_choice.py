"""Choose which conditions of a link that changes are measured: each distinct one, or some of many, spread evenly.

Links that are too slow to be measured on the real clock are refused before anything is started.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import takewhile

from wanbed.ground.errors import InputError
from wanbed.ground.units import format_duration, format_rate
from wanbed.testbed.network.links.wan_link import LinkCourse, WanLink
from wanbed.testbed.network.topology import Topology

MEASURED_MAX = 6
"""The most conditions of one link that are measured: each takes seconds on the real clock."""
_NAMED = 5


@dataclass(frozen=True)
class ChosenConditions:
    """The times, since training began, at which a link first has each of its conditions; the first one is 0."""

    measured_ns: tuple[int, ...]
    unmeasured_ns: tuple[int, ...]


def choose_conditions(link: WanLink) -> ChosenConditions:
    """Choose among the conditions that both directions of a link have together, until the longer course ends.

    Of more than ``MEASURED_MAX`` the first and the last are among those measured.
    """
    times_ns = _first_times_ns(link)
    last, steps = len(times_ns) - 1, MEASURED_MAX - 1
    kept = range(len(times_ns)) if last <= steps else {round(step * last / steps) for step in range(MEASURED_MAX)}
    return ChosenConditions(
        tuple(times_ns[number] for number in sorted(kept)),
        tuple(time_ns for number, time_ns in enumerate(times_ns) if number not in kept),
    )


def unmeasured_conditions(topology: Topology, dilation: float = 1.0) -> list[str]:
    """Return a sentence for each link of which not all conditions are measured; ``topology`` is dilated."""
    said = []
    for link in topology.wan:
        chosen = choose_conditions(link)
        if chosen.unmeasured_ns:
            said.append(
                f"{' and '.join(link.between)}: {len(chosen.measured_ns)} of their link's "
                f"{len(chosen.measured_ns) + len(chosen.unmeasured_ns)} conditions are measured, spread evenly, not "
                f"those from {_times_text([round(time_ns / dilation) for time_ns in chosen.unmeasured_ns])} on"
            )
    return said


def _times_text(times_ns: Sequence[int]) -> str:
    named = [format_duration(time_ns) for time_ns in times_ns[:_NAMED]]
    more = len(times_ns) - len(named)
    return ", ".join(named) + (f" and {more} later times" if more else "")


def _first_times_ns(link: WanLink) -> list[int]:
    courses = list(link.course_by_ends.values())
    if not courses:
        return [0]
    end_ns = max(map(_end_ns, courses))
    changes = (takewhile(lambda change: change.at_ns <= end_ns, course.changes_after(0)) for course in courses)
    found: dict[WanLink, int] = {}
    for at_ns in (0, *merge(*([change.at_ns for change in each] for each in changes))):
        found.setdefault(link.at(at_ns), at_ns)
    return list(found.values())


def _end_ns(course: LinkCourse) -> int:
    return course.changes[-1].at_ns if course.period_ns is None else course.period_ns


_LEAST_RATE_BPS = 10**6
"""Below it echoes wait for each other, and what fills the link outlasts the seconds for which goodput is measured."""


def check_measurable(topology: Topology, dilation: float = 1.0) -> None:
    """Raise InputError if calibration would measure a WAN link that is slower than that once dilated."""
    for link in topology.wan:
        for at_ns in choose_conditions(link).measured_ns:
            for (source, destination), conditions in link.at(at_ns).directions:
                rate_bps = conditions.pair_rate_bps
                if conditions.up and rate_bps is not None and rate_bps < _LEAST_RATE_BPS * dilation:
                    divided = "" if dilation == 1 else f", which dilation divides by {dilation:g}"
                    raise InputError(
                        f"topology: the link from {source} to {destination} has {format_rate(rate_bps)}{divided}: "
                        f"on the real clock links are measured from {format_rate(_LEAST_RATE_BPS)} on: give more, or "
                        "clock: virtual"
                    )
