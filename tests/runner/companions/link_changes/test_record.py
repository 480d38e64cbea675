"""The table of a simulated trial's changes of links: the first conditions, and each change until the end."""

from wanbed.runner.companions.link_changes.record import link_changes
from wanbed.testbed.network.links.wan_link import LinkConditions, course_of, link_of
from wanbed.testbed.network.topology import Topology

FIRST, DOWN = LinkConditions(20, 10**9), LinkConditions(20, 10**9, up=False)


def test_changes_of_a_direction_are_listed_until_the_trial_ends_also_if_they_begin_anew() -> None:
    course = course_of([(0, FIRST), (30, DOWN), (40, FIRST)], period_ns=100)
    rows = link_changes(Topology((), 0, None, (link_of(("a", "b"), FIRST, FIRST, (None, course)),)), 135)
    assert [(row.due_ns, row.applied_ns, row.source, row.destination, row.up) for row in rows] == [
        (0, 0, "b", "a", True),
        (30, 30, "b", "a", False),
        (40, 40, "b", "a", True),
        (130, 130, "b", "a", False),
    ]
    assert (rows[0].latency_ns, rows[0].rate_bps, rows[0].node_pair_rate_bps, rows[0].loss) == (20, 10**9, None, 0)
