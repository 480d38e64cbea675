"""A trace's rows, and after how long it begins anew."""

from typing import Any

import pytest

from wanbed.ground.errors import LocatedError
from wanbed.netem_profiles.traces import csv_trace
from wanbed.testbed.network.links.condition_trace import ConditionTrace, TraceRow


def trace(*rows: tuple[int, dict[str, Any]], end_ns: int | None = None) -> ConditionTrace:
    placed = tuple(TraceRow(at_ns, values, line) for line, (at_ns, values) in enumerate(rows, 2))
    return ConditionTrace("f.csv", "f", placed, end_ns)


MS = 10**6
ONE, OTHER = {"rate": 1}, {"rate": 2}


@pytest.mark.parametrize("times_ns", [[], [5, 5], [5, 4], [0, 5, 5]])
def test_times_rise(times_ns: list[int]) -> None:
    with pytest.raises(ValueError, match="rise"):
        trace(*((at_ns, ONE) for at_ns in times_ns))


def test_its_fields_are_those_of_any_row() -> None:
    assert trace((0, ONE), (5, {"loss": 0.1}), (6, {})).fields == {"rate", "loss"}


@pytest.mark.parametrize("last", [ONE, {}])
def test_it_begins_anew_at_its_last_row_which_says_what_the_first_says_or_nothing(last: dict[str, Any]) -> None:
    assert trace((0, ONE), (5 * MS, OTHER), (9 * MS, last)).period_ns(True) == 9 * MS
    assert trace((0, ONE), (5 * MS, OTHER), (9 * MS, last)).period_ns(False) is None


def test_a_last_row_that_would_never_hold_is_refused() -> None:
    for refused in (trace((0, ONE), (5 * MS, OTHER)), trace((0, ONE))):
        with pytest.raises(LocatedError, match=r"^f.csv:\d: with loop: true the last row says"):
            refused.period_ns(True)


def test_an_end_of_its_own_counts() -> None:
    assert trace((0, ONE), (5 * MS, OTHER), end_ns=8 * MS).period_ns(True) == 8 * MS
    assert trace((0, ONE), end_ns=8 * MS).period_ns(True) == 8 * MS
    assert trace((0, ONE), end_ns=8 * MS).period_ns(False) is None


def test_a_period_ends_after_the_last_row() -> None:
    assert trace((0, ONE), (5 * MS, OTHER), end_ns=8 * MS).period_ns(6 * MS) == 6 * MS
    with pytest.raises(LocatedError, match=r"^f\.csv:3: loop: 5ms ends before this row holds"):
        trace((0, ONE), (5 * MS, OTHER)).period_ns(5 * MS)


def test_a_period_is_a_millisecond_for_each_of_its_rows() -> None:
    assert trace((0, ONE), (1, OTHER)).period_ns(2 * MS) == 2 * MS
    assert trace((0, ONE), (MS, OTHER), (2 * MS, ONE)).period_ns(True) == 2 * MS
    with pytest.raises(LocatedError) as refused:
        trace((0, ONE), (1, OTHER)).period_ns(2000)
    assert str(refused.value) == (
        "f.csv:3: loop: 2us is too short for what begins anew, a row in 1ms on average: give 2ms or more, or at most 1 "
        "of the rows"
    )
    with pytest.raises(LocatedError, match=r"loop: 2ms is too short .*: give 3ms or more, or at most 2 of the rows$"):
        trace((0, ONE), (1, OTHER), (2, ONE)).period_ns(2 * MS)
    with pytest.raises(LocatedError, match=r"give 1ms or more$"):
        trace((0, ONE)).period_ns(2)


def test_the_rows_of_a_period_are_those_before_its_end() -> None:
    found = trace((0, ONE), (5, OTHER), (9, ONE))
    assert [row.at_ns for row in found.within(9)] == [0, 5]
    assert [row.at_ns for row in found.within(10)] == [0, 5, 9]
    assert found.within(None) == found.rows


def test_a_trace_lasts_31_days_at_most() -> None:
    seconds = 31 * 24 * 3600
    assert csv_trace(f"t_s,rate\n0,1Gbit\n{seconds},2Gbit\n", "f.csv", "f").rows[-1].at_ns == seconds * 10**9
    with pytest.raises(LocatedError, match=r"f\.csv:3"):
        csv_trace(f"t_s,rate\n0,1Gbit\n{seconds + 1},2Gbit\n", "f.csv", "f")
