"""Let the WAN links of a trial change from the moment when training begins, and write down when they did."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from wanbed.ground.wanbed_error import WanbedError
from wanbed.results.records.schema import LinkChange
from wanbed.runner.resolve.dilation import undilated_ns
from wanbed.testbed.kernel.changes.course_run import CourseRecord
from wanbed.testbed.network.links.link_conditions import LinkConditions
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.running_testbed import RunningTestbed


class LinkChanges:
    """The changes of one trial's links. ``begin`` lets them begin; ``rows`` and ``facts`` are empty until the end."""

    def __init__(self, testbed: RunningTestbed) -> None:
        self._changing = testbed.changing
        self.rows: Sequence[LinkChange] = ()
        self.facts: dict[str, Any] = {}

    def begin(self) -> None:
        """Let the links change from now on. Raise SubstrateError or ReadBackError on failure."""
        if self._changing is not None:
            self._changing.begin()


@contextmanager
def link_changes(testbed: RunningTestbed, topology: Topology, epoch_ns: int, dilation: float) -> Iterator[LinkChanges]:
    """Yield the changes of a trial that began at ``epoch_ns`` on this process's monotonic clock.

    Before ``begin`` and after the block all links have their first conditions, also if the trial fails. ``topology`` is
    the undilated network. Raise SubstrateError, or ReadBackError if a link was not changed as it should.
    """
    changes, changing = LinkChanges(testbed), testbed.changing
    if changing is None:
        yield changes
        return
    changing.hold(0)
    try:
        yield changes
    except BaseException:
        # The trial's own fault is the one to tell. The next trial begins with its first conditions, or fails.
        with suppress(WanbedError):
            changing.end()
        raise
    record = changing.end()
    changes.rows = change_rows(record, topology, epoch_ns, dilation)
    changes.facts = {
        "link_change_clock_error_ns": undilated_ns(record.clock_error_ns, dilation),
        "link_change_real_time_priority": record.real_time_priority,
    }


def change_rows(record: CourseRecord, topology: Topology, epoch_ns: int, dilation: float) -> list[LinkChange]:
    """Return the rows of a trial, direction by direction, on its undilated time line.

    ``topology`` is the undilated network.
    """
    begin_ns = undilated_ns(record.begin_ns - epoch_ns, dilation)
    rows = []
    for link in topology.wan:
        for (source, destination), course in link.course_by_ends.items():
            rows.append(_row(begin_ns, begin_ns, source, destination, course.first))
            for change in record.changes:
                if (change.source, change.destination) != (source, destination):
                    continue
                due_ns = undilated_ns(change.due_ns, dilation)
                applied_ns = None if change.applied_ns is None else undilated_ns(change.applied_ns, dilation) + begin_ns
                # Undilating may have rounded the time to just before the change.
                conditions = course.at(due_ns + 1)
                rows.append(_row(begin_ns + due_ns, applied_ns, source, destination, conditions))
    return rows


def _row(due_ns: int, applied_ns: int | None, source: str, destination: str, conditions: LinkConditions) -> LinkChange:
    return LinkChange(
        due_ns=due_ns,
        applied_ns=applied_ns,
        source=source,
        destination=destination,
        up=conditions.up,
        latency_ns=conditions.latency_ns,
        rate_bps=conditions.rate_bps,
        node_pair_rate_bps=conditions.node_pair_rate_bps,
        **asdict(conditions.impairments),
    )
