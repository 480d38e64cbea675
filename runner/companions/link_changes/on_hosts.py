"""Let the WAN links of a trial change from the moment when training begins, and write down when they did."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Self

from wanbed.ground.errors import WanbedError
from wanbed.results.records.run_store import TrialPart
from wanbed.results.records.schema import LinkChange
from wanbed.results.records.trial_tables import CHANGES_TABLE
from wanbed.runner.emulation.companion import Companion
from wanbed.runner.emulation.running_trial import RunningTrial, Trained
from wanbed.runner.resolve.dilation import undilated_ns
from wanbed.testbed.kernel.course_run import CourseRecord
from wanbed.testbed.network.links.wan_link import LinkConditions
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.substrate.substrate import ChangingLinks


class LinkChanges(Companion):
    """The changes of one trial's links.

    Before ``begin`` and after the training all links have their first conditions, also if the trial fails.
    ``topology`` is the undilated network; the trial began at ``epoch_ns`` on this process's monotonic clock.
    """

    def __init__(self, changing: ChangingLinks, topology: Topology, epoch_ns: int, dilation: float) -> None:
        self._changing = changing
        self._topology = topology
        self._epoch_ns = epoch_ns
        self._dilation = dilation
        self._record: CourseRecord

    @classmethod
    def of(cls, trial: RunningTrial) -> Self | None:
        """Return the changes of a trial's links, None if none changes."""
        changing, setting = trial.testbed.changing, trial.setting
        if changing is None:
            return None
        return cls(changing, trial.point.topology, setting.epoch_ns, setting.dilation)

    @contextmanager
    def during(self) -> Iterator[None]:
        """Hold the first conditions at the block's begin, and come back to them at its end.

        Raise SubstrateError, or ReadBackError if a link was not changed as it should.
        """
        self._changing.hold(0)
        try:
            yield
        except BaseException:
            # The trial's own fault is the one to tell. The next trial begins with its first conditions, or fails.
            with suppress(WanbedError):
                self._changing.end()
            raise
        self._record = self._changing.end()

    def begin(self) -> None:
        """Let the links change from now on. Raise SubstrateError or ReadBackError on failure."""
        self._changing.begin()

    def left(self, _: Trained) -> TrialPart:
        """Return when each change was due, and when the kernel had made it."""
        return TrialPart(
            {CHANGES_TABLE: change_rows(self._record, self._topology, self._epoch_ns, self._dilation)},
            {
                "link_change_clock_error_ns": undilated_ns(self._record.clock_error_ns, self._dilation),
                "link_change_real_time_priority": self._record.real_time_priority,
            },
        )


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


COMPANION = LinkChanges
