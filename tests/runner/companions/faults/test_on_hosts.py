"""The attempts at a training through faults, and what the record of a trial keeps of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runner.small_experiment import sweep_point
from wanbed.results.records.span_log import JoinedTraining, LostReplica, RankPlace, Span, SpanLogContents
from wanbed.runner.companions.faults.on_hosts import (
    Attempt,
    FaultHistory,
    covered_ns,
    each_iteration_once,
    fault_lines,
    iteration_windows_ns,
    kept,
)
from wanbed.runner.companions.faults.spec import PlannedFault
from wanbed.runner.emulation.rank_configs import SharedConfig
from wanbed.runner.emulation.rank_processes import InjectedFault, RankEnd
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.testbed.network.address_book import AddressBook
from wanbed.testbed.rack.clock_line import ClockLine
from wanbed.testbed.rack.driver.machine_clock import TimeLine

VARIANT: ResolvedVariant = None  # type: ignore[assignment] - no test here looks at it


def attempt_log(rank: int, iterations: range, *more: Span) -> SpanLogContents:
    spans = [Span("forward", each, 0, 100 * each, 100 * each + 60) for each in iterations]
    losses = tuple((each, 1.0) for each in iterations)
    return SpanLogContents(RankPlace(rank, f"h-{rank}", "east", 0, 0, rank), (*spans, *more), False, losses)


def attempt(kind: str, ranks: tuple[int, ...], *ends: RankEnd) -> Attempt:
    fault = PlannedFault(kind, "east", -1, 50, ())  # type: ignore[arg-type] - the kinds are these
    return Attempt(
        VARIANT,
        0,
        0,
        (attempt_log(0, range(2)), attempt_log(1, range(2))),
        ends,
        (InjectedFault(fault, 50, 55, ranks),),
    )


def test_done_is_what_the_slowest_rank_has_finished() -> None:
    early = Span("receive", 3, 0, 210, 220)
    found = Attempt(
        VARIANT, 0, 0, (attempt_log(0, range(3)), attempt_log(1, range(2), early), attempt_log(2, range(4)))
    )
    assert found.done == 2


def test_iterations_that_a_rank_did_again_after_it_came_back_count_once() -> None:
    back = replace(attempt_log(1, range(3, 6)), joined=JoinedTraining(3, 300))
    before, first, again = each_iteration_once([attempt_log(0, range(6)), attempt_log(1, range(5)), back])
    assert [len(before.spans), len(first.spans), len(again.spans)] == [6, 3, 3]
    assert (first.complete, again.joined) == (False, JoinedTraining(3, 300))


def test_a_rank_that_logged_nothing_has_done_nothing() -> None:
    assert Attempt(VARIANT, 5, 0, (attempt_log(0, range(5, 8)), attempt_log(1, range(0)))).done == 5


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
    assert replace(attempt("rank", (), *ends), faults=()).failed_ns == 70


def test_what_is_kept_has_only_the_iterations_that_count_and_is_complete() -> None:
    (only,) = kept([attempt_log(0, range(5))], 1, 3)
    assert [span.iteration for span in only.spans] == [1, 2]
    assert only.losses == ((1, 1.0), (2, 1.0))
    assert only.complete


def test_an_iteration_lasts_over_all_ranks() -> None:
    later = Span("all_reduce", 0, -1, 50, 99)
    assert iteration_windows_ns([attempt_log(0, range(2)), attempt_log(1, range(0), later)]) == {
        0: (0, 99),
        1: (100, 160),
    }


windows = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda each: (each[0], sum(each))))


@given(windows)
def test_covered_time_counts_every_instant_once(found: list[tuple[int, int]]) -> None:
    assert covered_ns(found) == len({instant for start, end in found for instant in range(start, end)})


S = 10**9

EPOCH = 1000 * S

DOCUMENT: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "5ms"},
    },
    "compute": {"forward": "1ms", "backward": "2ms", "activation": "1KiB"},
    "training": {"microbatches": 2, "iterations": 6},
    "fail": [{"rank": 1, "at": "2500ms"}],
    "recovery": "restart",
}


@pytest.fixture
def point() -> SweepPoint:
    return sweep_point(DOCUMENT)


def setting(point: SweepPoint, dilation: float = 1.0) -> SharedConfig:
    return SharedConfig(AddressBook(point.topology, 0), {}, dilation, "00" * 16, EPOCH, Path(), 1)


def log(rank: int, iterations: range, from_s: float) -> SpanLogContents:
    spans = [
        Span("forward", each, 0, round((from_s + number) * S), round((from_s + number + 1) * S))
        for number, each in enumerate(iterations)
    ]
    return SpanLogContents(RankPlace(rank, "east-0", "east", 0, 0, rank), tuple(spans), True)


@pytest.fixture
def first(point: SweepPoint) -> Attempt:
    """Two iterations of a second from second 1 on; rank 1 is killed at 3.5, rank 0 knows at 3.75."""
    (fault,) = point.faults.faults
    injected = InjectedFault(fault, EPOCH + round(3.5 * S), EPOCH + round(3.5 * S), (1,))
    ends = RankEnd(0, 1, EPOCH + round(3.75 * S), "rank 0: lost rank 1"), RankEnd(1, -9, EPOCH + round(3.51 * S), "")
    logs = log(0, range(2), 1), log(1, range(2), 1)
    return Attempt(point.variants[0], 0, EPOCH + S, logs, ends, (injected,))


def test_a_trial_that_began_again_lost_the_work_since_the_last_iteration_that_counts(
    point: SweepPoint, first: Attempt
) -> None:
    second = Attempt(point.variants[0], 2, EPOCH + 6 * S, (log(0, range(2, 6), 6), log(1, range(2, 6), 6)))
    facts = FaultHistory(point.faults, 6, [first, second], first.faults, setting(point)).facts(None)
    assert (facts["outcome"], facts["iterations_completed"]) == ("recovered", 6)
    (each,) = facts["disturbances"]
    expected = {"lost_work_ns": S // 2, "iterations_lost": 0, "time_to_detect_ns": S // 4}
    assert {**expected, "time_to_recover_ns": round(2.5 * S)}.items() <= each.items()
    assert facts["training_goodput"] == pytest.approx(6 / 9)
    assert list(fault_lines(facts)) == [
        "rank 1 failed at 3.500 s of the trial, every rank knew after 0.250 s, training began again after 2.500 s; "
        "finished iterations that were lost: 0"
    ]


def test_iterations_after_the_checkpoint_are_lost(point: SweepPoint, first: Attempt) -> None:
    second = Attempt(point.variants[0], 1, EPOCH + 6 * S, (log(0, range(1, 6), 6), log(1, range(1, 6), 6)))
    facts = FaultHistory(point.faults, 6, [first, second], first.faults, setting(point)).facts(None)
    assert facts["iterations_lost"] == 1
    assert facts["disturbances"][0]["lost_work_ns"] == round(1.5 * S)
    assert facts["training_goodput"] == pytest.approx(6 / 10)


def test_a_trial_that_cannot_go_on_keeps_what_it_had_and_the_reason(point: SweepPoint, first: Attempt) -> None:
    facts = FaultHistory(point.faults, 6, [first], first.faults, setting(point), "no host is left").facts(None)
    expected = {
        "outcome": "failed",
        "planned": True,
        "iterations_completed": 2,
        "reason": "rank 1 failed, and training cannot go on: no host is left",
        "wall_ns": round(2.75 * S),
    }
    assert expected.items() <= facts.items()


def test_a_trial_that_fails_when_every_iteration_is_kept_has_recovered_and_begins_no_other_attempt(
    point: SweepPoint, first: Attempt
) -> None:
    facts = FaultHistory(point.faults, 2, [first], first.faults, setting(point), finished=True).facts(None)
    assert (facts["outcome"], facts["reason"], facts["iterations_completed"]) == ("recovered", None, 2)
    (each,) = facts["disturbances"]
    assert (each["iterations_lost"], each["time_to_recover_ns"]) == (0, None)
    assert facts["training_goodput"] == 1.0


def test_times_are_undilated(point: SweepPoint, first: Attempt) -> None:
    facts = FaultHistory(point.faults, 6, [first], first.faults, setting(point, 2.0)).facts(None)
    assert facts["disturbances"][0]["time_to_detect_ns"] == S // 8
    assert facts["injected"][0]["applied_ns"] == round(1.75 * S)


def test_a_failure_that_nothing_planned_is_named_by_the_first_rank_that_failed(
    point: SweepPoint, first: Attempt
) -> None:
    alone = replace(first, faults=(), cause="rank 0: lost rank 1")
    facts = FaultHistory(point.faults, 6, [alone], (), setting(point)).facts(None)
    assert (facts["outcome"], facts["planned"], facts["reason"]) == ("failed", False, "rank 0: lost rank 1")
    assert facts["never_due"] == ["rank 1"]


def test_a_fault_that_meets_nobody_disturbs_nothing(point: SweepPoint, first: Attempt) -> None:
    met = replace(first.faults[0], ranks=())
    whole = Attempt(point.variants[0], 0, EPOCH + S, (log(0, range(6), 1), log(1, range(6), 1)), (), (met,))
    facts = FaultHistory(point.faults, 6, [whole], (met,), setting(point)).facts(None)
    assert facts["outcome"] == "undisturbed"
    assert list(fault_lines(facts)) == ["rank 1 failed, where no rank was"]


def test_a_fault_that_meets_ranks_which_have_done_all_disturbs_nothing(point: SweepPoint, first: Attempt) -> None:
    whole = Attempt(point.variants[0], 0, EPOCH + S, (log(0, range(6), 1), log(1, range(6), 1)), (), first.faults)
    facts = FaultHistory(point.faults, 6, [whole], first.faults, setting(point)).facts(None)
    assert (facts["outcome"], facts["disturbances"]) == ("undisturbed", [])
    assert list(fault_lines(facts)) == ["rank 1 failed when its ranks had done all iterations"]


def test_a_replica_that_is_killed_before_its_end_is_lost_even_if_nobody_noticed(
    point: SweepPoint, first: Attempt
) -> None:
    killed = replace(log(1, range(6), 1), complete=False)
    attempt = Attempt(point.variants[0], 0, EPOCH + S, (log(0, range(6), 1), killed), (), first.faults)
    assert FaultHistory(point.faults, 6, [attempt], first.faults, setting(point)).facts(None)["outcome"] == "survived"


def test_where_the_others_go_on_the_trial_survives(point: SweepPoint, first: Attempt) -> None:
    gatherer = replace(log(0, range(6), 1), lost=(LostReplica(1, round(3.75 * S)),))
    attempt = Attempt(point.variants[0], 0, EPOCH + S, (gatherer, log(1, range(2), 1)), (), first.faults)
    facts = FaultHistory(point.faults, 6, [attempt], first.faults, setting(point)).facts(None)
    assert (facts["outcome"], facts["iterations_completed"], facts["iterations_lost"]) == ("survived", 6, 0)
    (loss,) = facts["disturbances"]
    assert loss["time_to_detect_ns"] == round(0.25 * S)
    assert list(fault_lines(facts)) == [
        "rank 1 failed at 3.500 s of the trial, the rank that gathers knew after 0.250 s, and the others went on"
    ]


def test_over_machines_moments_are_put_on_the_drivers_clock_with_how_far_they_can_be_off(
    point: SweepPoint, first: Attempt
) -> None:
    timed = tuple(replace(each, timed_by="west-0") for each in first.faults)
    attempts = [replace(first, faults=timed)]
    history = FaultHistory(point.faults, 6, attempts, timed, setting(point, 2.0), None, finished=False)
    # The clock of the west, where rank 1 was killed, has gained 10 ms since the trial's start.
    machine_of = {"east-0": "one", "west-0": "two"}
    lines = {"one": ClockLine(EPOCH, 0.0, 0.0, 4_000), "two": ClockLine(EPOCH, 10e6, 0.0, 7_000)}
    facts = history.facts(TimeLine(EPOCH, machine_of, lines, {"one": 0, "two": 0}))
    (injected,) = facts["injected"]
    assert injected["applied_ns"] == round((3.5 * S - 10e6) / 2)
    assert injected["clock_error_ns"] == 3_500
    (each,) = facts["disturbances"]
    assert each["time_to_detect_ns"] == round((0.25 * S + 10e6) / 2)
    assert "clock_error_ns" not in history.facts(None)["injected"][0]
