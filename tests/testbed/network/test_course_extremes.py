"""Links that change, as they begin and at their best."""

from wanbed.ground.impairments import Impairments
from wanbed.testbed.network.course_extremes import as_begun, at_best
from wanbed.testbed.network.links.link_conditions import LinkConditions
from wanbed.testbed.network.links.link_course import course_of
from wanbed.testbed.network.links.wan_link import link_of
from wanbed.testbed.network.topology import Topology

MS = 10**6
FIRST = LinkConditions(20 * MS, 10**9, 10**8)
COURSE = course_of(
    [
        (0, FIRST),
        (5, LinkConditions(12 * MS, 10**8, 2 * 10**8, Impairments(jitter_ns=4 * MS))),
        (9, LinkConditions(30 * MS, 10**7, None, up=False)),
    ]
)
CHANGING = Topology((), 0, None, (link_of(("a", "b"), FIRST, FIRST, (COURSE, None)),))


def test_the_best_is_the_least_latency_with_its_jitter_and_the_highest_rates_of_any_time() -> None:
    best = at_best(CHANGING)
    assert best.conditions("a", "b") == LinkConditions(8 * MS, 10**9, None)
    assert best.conditions("b", "a") == FIRST
    assert not best.changes


def test_as_begun_has_the_first_conditions_for_ever() -> None:
    begun = as_begun(CHANGING)
    assert begun.conditions("a", "b") == FIRST
    assert not begun.changes
    assert as_begun(begun) is begun
