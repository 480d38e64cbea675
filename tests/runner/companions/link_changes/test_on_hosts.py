from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.present import present
from wanbed.results.records.schema import LinkChange
from wanbed.results.records.trial_tables import CHANGES_TABLE
from wanbed.runner.companions.link_changes.on_hosts import LinkChanges, change_rows
from wanbed.runner.emulation.running_trial import RunningTrial, Trained
from wanbed.runner.runs.faults import TrialError
from wanbed.testbed.kernel.course_run import AppliedChange, CourseRecord
from wanbed.testbed.network.links.wan_link import LinkConditions, WanLink, course_of
from wanbed.testbed.network.topology import Topology
from wanbed.testbed.substrate.substrate import SubstrateError

S = 10**9
NEAR, FAR, DOWN = LinkConditions(10_000_000, 10**9), LinkConditions(40_000_000, 10**8), LinkConditions(up=False)
COURSE = course_of([(0, NEAR), (2 * S, FAR), (3 * S, DOWN)])
TOPOLOGY = Topology((), 0, None, (WanLink(("east", "west"), NEAR, courses=(COURSE, None)),))


class Changing:
    """Links that remember what they were told."""

    def __init__(self, record: CourseRecord | None = None) -> None:
        self.told: list[str] = []
        self.record = record or CourseRecord(0, (), True)
        self.ends: Callable[[], None] = lambda: None

    def hold(self, time_ns: int) -> None:
        self.told.append(f"hold {time_ns}")

    def begin(self) -> int:
        self.told.append("begin")
        return 0

    def end(self) -> CourseRecord:
        self.told.append("end")
        self.ends()
        return self.record


def changes_of(changing: Changing, dilation: float = 1.0) -> LinkChanges:
    return LinkChanges(changing, TOPOLOGY, 0, dilation)


def test_rows_begin_with_the_first_conditions_and_are_on_the_undilated_time_line() -> None:
    made = (AppliedChange("east", "west", 8 * S, 8 * S + 400), AppliedChange("east", "west", 12 * S, None))
    rows = change_rows(CourseRecord(5 * S, made, True), TOPOLOGY, 1 * S, 4.0)
    assert [(row.due_ns, row.applied_ns, row.latency_ns, row.rate_bps, row.up) for row in rows] == [
        (1 * S, 1 * S, NEAR.latency_ns, NEAR.rate_bps, True),
        (3 * S, 3 * S + 100, FAR.latency_ns, FAR.rate_bps, True),
        (4 * S, None, 0, None, False),
    ]
    assert {(row.source, row.destination) for row in rows} == {("east", "west")}


@pytest.mark.parametrize("dilation", [1.0, 1.37, 3.0, 7.3])
def test_every_change_has_the_conditions_that_it_made_at_any_dilation(dilation: float) -> None:
    times_ns = [number * 333_333_333 + 1 for number in range(1, 40)]
    conditions = [replace(NEAR, latency_ns=number) for number in range(40)]
    course = course_of(zip([0, *times_ns], conditions, strict=True))
    topology = Topology((), 0, None, (WanLink(("east", "west"), conditions[0], courses=(None, course)),))
    dilated = present(topology.dilated(dilation).course("west", "east"))
    made = tuple(AppliedChange("west", "east", each.at_ns, each.at_ns) for each in dilated.changes_after(0))
    rows = change_rows(CourseRecord(0, made, True), topology, 0, dilation)
    assert [row.latency_ns for row in rows] == list(range(40))


def test_links_begin_with_their_first_conditions_and_end_with_them() -> None:
    changing = Changing(CourseRecord(2 * S, (), False, 1000))
    changes = changes_of(changing, dilation=2.0)
    with changes.during():
        changes.begin()
        assert changing.told == ["hold 0", "begin"]
    assert changing.told[2:] == ["end"]
    left = changes.left(Trained([]))
    assert [row.due_ns for row in cast("list[LinkChange]", left.tables[CHANGES_TABLE])] == [1 * S]
    assert left.facts == {"link_change_clock_error_ns": 500, "link_change_real_time_priority": False}


def test_a_failed_trial_ends_them_too_and_its_own_fault_is_told() -> None:
    changing = Changing()

    def fail() -> None:
        raise SubstrateError("the gateway guest ended")

    changing.ends = fail
    with pytest.raises(TrialError, match="rank 3"), changes_of(changing).during():
        raise TrialError("rank 3 failed")
    assert changing.told == ["hold 0", "end"]


def test_where_no_link_changes_nothing_is_written() -> None:
    trial = SimpleNamespace(testbed=SimpleNamespace(changing=None), setting=None)
    assert LinkChanges.of(cast("RunningTrial", trial)) is None
