from hypothesis import given
from hypothesis import strategies as st

from wanbed.testbed.measurement.condition_choice import MEASURED_MAX, choose_conditions, unmeasured_conditions
from wanbed.testbed.network.links.link_conditions import LinkConditions
from wanbed.testbed.network.links.link_course import LinkCourse, course_of
from wanbed.testbed.network.links.wan_link import WanLink
from wanbed.testbed.network.topology import Topology

S = 10**9


def rates(*bps: int, spacing_ns: int = S, period_ns: int | None = None) -> LinkCourse:
    return course_of(
        ((number * spacing_ns, LinkConditions(0, rate)) for number, rate in enumerate(bps)), period_ns=period_ns
    )


def link(there: LinkCourse | None, back: LinkCourse | None = None) -> WanLink:
    first = LinkConditions() if there is None else there.first
    return WanLink(("east", "west"), first, LinkConditions() if back is None else back.first, (there, back))


def test_each_distinct_condition_is_measured_once_where_it_comes_first() -> None:
    chosen = choose_conditions(link(rates(10, 20, 10, 30, 20)))
    assert chosen.measured_ns == (0, 1 * S, 3 * S)
    assert chosen.unmeasured_ns == ()


def test_conditions_are_those_of_both_directions_together() -> None:
    chosen = choose_conditions(link(rates(10, 20), rates(5, 6, spacing_ns=3 * S)))
    assert chosen.measured_ns == (0, 1 * S, 3 * S)


def test_a_course_that_repeats_is_measured_as_long_as_it_is_new() -> None:
    assert choose_conditions(link(rates(10, 20, period_ns=5 * S))).measured_ns == (0, 1 * S)


def test_a_link_that_does_not_change_has_its_first_conditions_alone() -> None:
    assert choose_conditions(link(None)).measured_ns == (0,)


@given(st.integers(MEASURED_MAX + 1, 300))
def test_of_many_conditions_some_are_measured_spread_evenly_the_first_and_the_last_among_them(count: int) -> None:
    chosen = choose_conditions(link(rates(*range(1, count + 1))))
    assert len(chosen.measured_ns) == MEASURED_MAX
    assert (chosen.measured_ns[0], chosen.measured_ns[-1]) == (0, (count - 1) * S)
    assert sorted((*chosen.measured_ns, *chosen.unmeasured_ns)) == [number * S for number in range(count)]
    gaps = [later - earlier for earlier, later in zip(chosen.measured_ns, chosen.measured_ns[1:], strict=False)]
    assert max(gaps) - min(gaps) <= S


def test_what_is_not_measured_is_named_in_the_experiments_time() -> None:
    topology = Topology((), 0, None, (link(rates(*range(1, 14), spacing_ns=4 * S)),))
    (said,) = unmeasured_conditions(topology, dilation=4.0)
    assert said == (
        "east and west: 6 of their link's 13 conditions are measured, spread evenly, not those from 1s, 3s, 4s, 6s, 8s "
        "and 2 later times on"
    )
    assert unmeasured_conditions(Topology((), 0, None, (link(rates(10, 20)),))) == []
