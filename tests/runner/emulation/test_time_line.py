from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from wanbed.results.records.span_log import JoinedTraining, LostReplica, RankPlace, Span, SpanLogContents
from wanbed.runner.emulation.time_line import check_order, on_one_time_line, while_all_ran_ns
from wanbed.runner.runs.faults import TrialError

MS = 1_000_000


def log(rank: int, host: str, *spans: Span) -> SpanLogContents:
    return SpanLogContents(RankPlace(rank, host, host[:4], 0, 0, rank), spans, True)


def sent(start_ns: int, iteration: int = 0) -> Span:
    return Span("send", iteration, 0, start_ns, start_ns + MS, 64, "west-0", "activation")


def received(start_ns: int, iteration: int = 0) -> Span:
    return Span("receive", iteration, 0, start_ns, start_ns + MS, 64, "east-0", "activation")


def check(sends: list[Span], receives: list[Span], error_ns: int = MS) -> None:
    check_order([log(0, "east-0", *sends), log(1, "west-0", *receives)], lambda _: error_ns)


def test_a_message_that_arrives_after_it_was_sent_is_in_order() -> None:
    check([sent(0), sent(5 * MS, 1)], [received(2 * MS), received(6 * MS, 1)], 0)


def test_within_what_clocks_are_known_a_message_may_seem_to_come_early() -> None:
    check([sent(10 * MS)], [received(8 * MS)])


def test_a_message_that_comes_earlier_than_clocks_explain_fails_the_trial() -> None:
    words = (
        r"^west-0 received from east-0 3.000 ms before that was sent \(iteration 0\), where clocks are known within "
        r"2.000 ms: a clock was changed during the trial, run it again$"
    )
    with pytest.raises(TrialError, match=words):
        check([sent(10 * MS)], [received(7 * MS)])


def test_messages_that_are_alike_count_in_the_order_of_their_times() -> None:
    check([sent(0), sent(10 * MS)], [received(12 * MS), received(MS)], 0)


def test_on_one_machine_times_are_as_they_were_logged() -> None:
    logs = [log(0, "east-0", sent(10 * MS)), log(1, "west-0", received(0))]
    assert on_one_time_line(None, logs) == (logs, {})


def test_over_machines_times_are_moved_and_the_clocks_recorded() -> None:
    moved, facts = on_one_time_line(
        ahead_in_the_east(), [log(0, "east-0", sent(10 * MS)), log(1, "west-0", received(6 * MS))]
    )
    assert [span.start_ns for each in moved for span in each.spans] == [5 * MS, 6 * MS]
    assert facts == {"clocks": {"m": 1}}


def ahead_in_the_east() -> Any:
    """A time line on which the clock of the east is 5 ms ahead."""
    return SimpleNamespace(
        trial_ns=lambda host, ns: ns - (5 * MS if host == "east-0" else 0), error_ns=lambda _: 0, facts=lambda: {"m": 1}
    )


def test_so_are_the_times_at_which_replicas_were_lost_and_have_joined() -> None:
    logged = replace(log(0, "east-0"), lost=(LostReplica(1, 9 * MS),), joined=JoinedTraining(3, 8 * MS))
    (moved,), _ = on_one_time_line(ahead_in_the_east(), [logged])
    assert moved.lost == (LostReplica(1, 4 * MS),)
    assert moved.joined == JoinedTraining(3, 3 * MS)


def test_where_ranks_were_killed_messages_that_lack_one_end_are_passed_by() -> None:
    logs = [log(0, "east-0", sent(10 * MS)), log(1, "west-0", received(2 * MS), received(12 * MS))]
    check_order(logs, lambda _: 0, whole=False)
    with pytest.raises(TrialError):
        check_order(logs, lambda _: 0)


def ended(rank: int, *ends_ns: int) -> SpanLogContents:
    spans = tuple(Span("iteration", number, -1, 0, end_ns) for number, end_ns in enumerate(ends_ns))
    return SpanLogContents(RankPlace(rank, f"east-{rank}", "east", 0, 0, rank), spans, complete=True)


def test_all_jobs_ran_until_the_first_of_them_had_done_its_last_iteration() -> None:
    logs = [ended(0, 10, 40), ended(1, 10, 60), ended(0, 20, 50), ended(1, 20, 30)]
    assert while_all_ran_ns(logs, [2, 2], dilation=1.0) == 50
    assert while_all_ran_ns(logs, [2, 2], dilation=2.0) == 25
    assert while_all_ran_ns(logs[:2], [2], dilation=1.0) is None
