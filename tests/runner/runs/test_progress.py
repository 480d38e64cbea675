import io

import pytest

from wanbed.results.records.trial_id import TrialId
from wanbed.runner.runs.progress import OVERRUN_SHARE, PLAIN_INTERVAL_S, Kind, Progress, remaining_s

ALIKE = [TrialId(0, "gpipe", repeat) for repeat in range(10)]


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_line_is_reported_at_each_trials_start(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress(4, pending=ALIKE[:4], stream=stream, clock=clock) as progress:
        progress.trial_started({"topology.wan.latency": "10ms"}, "gpipe", 0)
        clock.now_s += 3
        progress.trial_finished()
        progress.trial_started({"topology.wan.latency": "10ms"}, "gpipe", 1)
        clock.now_s += 5
        progress.trial_finished()
    assert stream.getvalue().splitlines() == [
        "0 of 4 trials done; 0:00 elapsed; running: topology.wan.latency=10ms, gpipe, repeat 0",
        "1 of 4 trials done; 0:03 elapsed; about 0:09 left; running: topology.wan.latency=10ms, gpipe, repeat 1",
    ]


def test_a_pipe_sees_one_line_a_trial_and_one_at_the_end_without_control_characters(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress(1, pending=ALIKE[:1], stream=stream, clock=clock) as progress:
        progress.trial_started({}, "gpipe", 0)
        for _ in range(125):
            clock.now_s += PLAIN_INTERVAL_S / 50
            progress.refresh()
        progress.trial_finished()
    assert stream.getvalue().splitlines() == [
        "0 of 1 trials done; 0:00 elapsed; running: gpipe, repeat 0",
        "1 of 1 trials done; 0:12 elapsed; last: gpipe, repeat 0",
    ]


def test_there_is_no_estimate_before_a_trial_has_ended_and_none_after_the_last(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(1, pending=ALIKE[:1], stream=stream, clock=clock)
    assert progress.remaining_s() is None
    progress.trial_started({}, "gpipe", 0)
    assert progress.remaining_s() is None
    clock.now_s += 2
    progress.trial_finished()
    assert progress.remaining_s() == 0
    assert "left" not in stream.getvalue()


def test_the_estimate_counts_down_while_a_trial_runs_and_stays_above_zero(clock: Clock) -> None:
    progress = Progress(3, pending=ALIKE[:3], stream=io.StringIO(), clock=clock)
    progress.trial_started({}, "gpipe", 0)
    clock.now_s += 10
    progress.trial_finished()
    progress.trial_started({}, "gpipe", 1)
    clock.now_s += 4
    assert progress.remaining_s() == 16
    clock.now_s += 36
    assert progress.remaining_s() == OVERRUN_SHARE * 40 + 10


def test_the_preparation_of_a_sweep_point_is_no_trial_s_time_and_is_still_to_come_for_the_next(clock: Clock) -> None:
    pending = [TrialId(0, "gpipe", 0), TrialId(0, "gpipe", 1), TrialId(1, "gpipe", 0)]
    progress = Progress(3, pending=pending, stream=io.StringIO(), clock=clock)
    clock.now_s += 50
    progress.trial_started({}, "gpipe", 0)
    clock.now_s += 10
    progress.trial_finished()
    assert progress.remaining_s() == 10 + 50 + 10


def test_the_last_trial_never_has_no_time_left_while_it_runs(clock: Clock) -> None:
    progress = Progress(2, pending=ALIKE[:2], stream=io.StringIO(), clock=clock)
    progress.trial_started({}, "gpipe", 0)
    clock.now_s += 3
    progress.trial_finished()
    progress.trial_started({}, "gpipe", 1)
    for _ in range(20):
        clock.now_s += 1
        assert (progress.remaining_s() or 0) > 0


def test_trials_of_an_earlier_run_are_done_and_not_in_the_estimate(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(10, 7, pending=ALIKE[:3], stream=stream, clock=clock)
    progress.trial_started({}, "gpipe", 0)
    clock.now_s += 100
    progress.trial_finished()
    progress.trial_started({}, "gpipe", 1)
    assert stream.getvalue().splitlines() == [
        "7 of 10 trials done; 0:00 elapsed; running: gpipe, repeat 0",
        "8 of 10 trials done; 1:40 elapsed; about 3:20 left; running: gpipe, repeat 1",
    ]


def test_a_clock_that_starts_at_zero_is_a_clock(clock: Clock) -> None:
    clock.now_s = 0.0
    progress = Progress(2, pending=ALIKE[:2], stream=io.StringIO(), clock=clock)
    progress.trial_started({}, "gpipe", 0)
    clock.now_s = 7.0
    progress.trial_finished()
    assert progress.remaining_s() == 7


def test_long_times_are_reported_in_hours(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(1, pending=ALIKE[:1], stream=stream, clock=clock)
    progress.trial_started({}, "gpipe", 0)
    clock.now_s += 3 * 3600 + 125
    progress.trial_finished()
    assert "3:02:05 elapsed" in stream.getvalue()


def test_a_terminal_sees_a_bar_with_names_as_they_are(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    stream = Terminal()
    with Progress(2, pending=ALIKE[:2], stream=stream, clock=clock) as progress:
        progress.trial_started({"topology.wan.latency": "10ms"}, "[red]gpipe[/]", 0)
        clock.now_s += 2
        progress.trial_finished()
    shown = stream.getvalue()
    assert "1 of 2 trials done" in shown
    assert "[red]gpipe[/]" in shown
    assert "━" in shown


def test_an_error_inside_a_sweep_is_passed_on_and_leaves_the_terminal_usable(clock: Clock) -> None:
    stream = Terminal()
    with pytest.raises(RuntimeError, match="host is gone"), Progress(2, stream=stream, clock=clock):
        raise RuntimeError("host is gone")
    hidden, shown = stream.getvalue().rfind("\x1b[?25l"), stream.getvalue().rfind("\x1b[?25h")
    assert hidden <= shown


def test_parallel_trials_share_the_time_and_print_seldom(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress(80, stream=stream, clock=clock) as progress:
        for trial in range(80):
            clock.now_s += 0.125
            progress.trial_ended_beside_others({"topology.wan.latency": f"{trial}ms"}, "gpipe")
    assert stream.getvalue().splitlines() == [
        "40 of 80 trials done; 0:05 elapsed; about 0:05 left; last: topology.wan.latency=39ms, gpipe",
        "80 of 80 trials done; 0:10 elapsed; last: topology.wan.latency=79ms, gpipe",
    ]


def test_the_end_of_parallel_trials_is_counted_down_to(clock: Clock) -> None:
    progress = Progress(4, stream=io.StringIO(), clock=clock)
    assert progress.remaining_s() is None
    for _ in range(2):
        clock.now_s += 6
        progress.trial_ended_beside_others({}, "gpipe")
    assert progress.remaining_s() == 12
    clock.now_s += 2
    assert progress.remaining_s() == 10


def test_lines_of_others_are_printed_above_the_bar_as_they_are(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    line = f"wanbed: east to west [red]: {'RTT 20.0 of 20.0 ms, ' * 8}\n"
    with Progress(2, pending=ALIKE[:2], stream=stream, clock=clock) as progress:
        progress.print_above(line)
    assert line in stream.getvalue().replace("\r\n", "\n")


PREPARATION: Kind = ("preparation",)


def trial(variant: str, point: int = 0) -> Kind:
    return "trial", variant, point


def estimate(ended: list[tuple[Kind, float]], ahead: list[Kind], running_s: float = 0.0) -> float | None:
    return remaining_s(ended, ahead, running_s, basis="trial")


@pytest.mark.parametrize("ended", [[], [(PREPARATION, 12.0)]])
def test_there_is_nothing_to_go_by_before_a_trial_has_ended(ended: list[tuple[Kind, float]]) -> None:
    assert estimate(ended, [trial("gpipe")]) is None


def test_every_trial_ahead_is_counted_with_the_mean_of_its_like() -> None:
    ended = [(trial("gpipe"), 10.0), (trial("gpipe"), 14.0), (trial("atlas"), 2.0)]
    assert estimate(ended, [trial("atlas"), trial("gpipe"), trial("gpipe")]) == 2 + 12 + 12


def test_the_same_sweep_point_counts_before_the_same_variant_and_that_before_any_trial() -> None:
    ended = [(trial("gpipe", 0), 10.0), (trial("gpipe", 1), 20.0), (trial("atlas", 0), 3.0)]
    assert estimate(ended, [trial("gpipe", 1)]) == 20
    assert estimate(ended, [trial("gpipe", 2)]) == 15
    assert estimate(ended, [trial("varuna", 0)]) == 11


def test_preparations_ahead_are_counted_by_those_that_ended() -> None:
    assert estimate([(PREPARATION, 30.0), (trial("gpipe", 0), 5.0)], [PREPARATION, trial("gpipe", 1)]) == 35


def test_what_runs_is_counted_down() -> None:
    assert estimate([(trial("gpipe"), 10.0)], [trial("gpipe"), trial("gpipe")], 4.0) == 16


def test_what_takes_longer_than_expected_still_has_time_left() -> None:
    assert estimate([(trial("gpipe"), 10.0)], [trial("gpipe"), trial("gpipe")], 40.0) == OVERRUN_SHARE * 40 + 10


def test_nothing_ahead_takes_no_time() -> None:
    assert estimate([(trial("gpipe"), 10.0)], []) == 0
