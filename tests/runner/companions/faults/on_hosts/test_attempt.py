"""An attempt counts the iterations that every rank has finished, and knows who noticed its end."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.records.span_log import JoinedTraining, Span, SpanLogContents, SpanLogHeader
from wanbed.runner.companions.faults.on_hosts import (
    Attempt,
    covered_ns,
    each_iteration_once,
    iteration_windows_ns,
    kept,
)
from wanbed.runner.companions.faults.spec import PlannedFault
from wanbed.runner.emulation.rank_processes import InjectedFault, RankEnd
from wanbed.runner.resolve.resolved_variant import ResolvedVariant

VARIANT: ResolvedVariant = None  # type: ignore[assignment] - no test here looks at it


def log(rank: int, iterations: range, *more: Span) -> SpanLogContents:
    spans = [Span("forward", each, 0, 100 * each, 100 * each + 60) for each in iterations]
    losses = tuple((each, 1.0) for each in iterations)
    return SpanLogContents(SpanLogHeader(rank, f"h-{rank}", "east", 0, 0, rank), (*spans, *more), False, losses)


def attempt(kind: str, ranks: tuple[int, ...], *ends: RankEnd) -> Attempt:
    fault = PlannedFault(kind, "east", -1, 50, ())  # type: ignore[arg-type] - the kinds are these
    return Attempt(VARIANT, 0, 0, (log(0, range(2)), log(1, range(2))), ends, (InjectedFault(fault, 50, 55, ranks),))


def test_done_is_what_the_slowest_rank_has_finished() -> None:
    early = Span("receive", 3, 0, 210, 220)
    found = Attempt(VARIANT, 0, 0, (log(0, range(3)), log(1, range(2), early), log(2, range(4))))
    assert found.done == 2


def test_iterations_that_a_rank_did_again_after_it_came_back_count_once() -> None:
    back = replace(log(1, range(3, 6)), joined=JoinedTraining(3, 300))
    before, first, again = each_iteration_once([log(0, range(6)), log(1, range(5)), back])
    assert [len(before.spans), len(first.spans), len(again.spans)] == [6, 3, 3]
    assert (first.complete, again.joined) == (False, JoinedTraining(3, 300))


def test_a_rank_that_logged_nothing_has_done_nothing() -> None:
    assert Attempt(VARIANT, 5, 0, (log(0, range(5, 8)), log(1, range(0)))).done == 5


def test_the_ranks_of_a_killed_host_do_not_survive_and_those_behind_a_gateway_do() -> None:
    ends = RankEnd(0, -9, 60, ""), RankEnd(1, 1, 90, "lost")
    killed, behind = attempt("host", (0,), *ends), attempt("gateway", (0,), *ends)
    assert [end.rank for end in killed.survivors] == [1]
    assert [end.rank for end in behind.survivors] == [0, 1]
    assert killed.failed_ns == 55
    assert killed.all_knew_ns == 90
    assert killed.said == ((1, "lost"),)


def test_where_a_rank_noticed_nothing_not_all_knew() -> None:
    assert attempt("rank", (0,), RankEnd(0, -9, 60, ""), RankEnd(1, None, None, "")).all_knew_ns is None


def test_an_attempt_that_no_fault_explains_failed_when_its_first_rank_ended() -> None:
    ends = RankEnd(0, 1, 80, "lost rank 1"), RankEnd(1, -9, 70, "")
    found = replace(attempt("rank", (), *ends), faults=())
    assert found.failed_ns == 70


def test_what_is_kept_has_only_the_iterations_that_count_and_is_complete() -> None:
    (only,) = kept([log(0, range(5))], 1, 3)
    assert [span.iteration for span in only.spans] == [1, 2]
    assert only.losses == ((1, 1.0), (2, 1.0))
    assert only.complete


def test_an_iteration_lasts_over_all_ranks() -> None:
    later = Span("all_reduce", 0, -1, 50, 99)
    assert iteration_windows_ns([log(0, range(2)), log(1, range(0), later)]) == {0: (0, 99), 1: (100, 160)}


windows = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda each: (each[0], sum(each))))


@given(windows)
def test_covered_time_counts_every_instant_once(found: list[tuple[int, int]]) -> None:
    assert covered_ns(found) == len({instant for start, end in found for instant in range(start, end)})
