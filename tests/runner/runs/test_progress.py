import io

import pytest

from runner.runs.progress import PLAIN_INTERVAL_S, Progress


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


def test_a_line_is_reported_at_each_trials_end(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress(4, stream=stream, clock=clock) as progress:
        progress.trial_started({"topology.wan.latency": "10ms"}, "gpipe", 0)
        clock.now_s += 3
        progress.trial_finished()
        progress.trial_started({"topology.wan.latency": "10ms"}, "gpipe", 1)
        clock.now_s += 5
        progress.trial_finished()
    assert stream.getvalue().splitlines() == [
        "1 of 4 trials done; 0:03 elapsed; about 0:09 left; last: topology.wan.latency=10ms, gpipe, repeat 0",
        "2 of 4 trials done; 0:08 elapsed; about 0:08 left; last: topology.wan.latency=10ms, gpipe, repeat 1",
    ]


def test_refresh_prints_at_most_every_few_seconds(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress(1, stream=stream, clock=clock) as progress:
        progress.trial_started({}, "gpipe", 0)
        for _ in range(125):
            clock.now_s += PLAIN_INTERVAL_S / 50
            progress.refresh()
    assert stream.getvalue().splitlines() == [
        "0 of 1 trials done; 0:05 elapsed; running: gpipe, repeat 0",
        "0 of 1 trials done; 0:10 elapsed; running: gpipe, repeat 0",
    ]


def test_there_is_no_estimate_before_a_trial_has_ended_and_none_after_the_last(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(1, stream=stream, clock=clock)
    assert progress.remaining_s() is None
    progress.trial_started({}, "gpipe", 0)
    assert progress.remaining_s() is None
    clock.now_s += 2
    progress.trial_finished()
    assert progress.remaining_s() == 0
    assert "left" not in stream.getvalue()


def test_the_estimate_counts_down_while_a_trial_runs_and_stays_above_zero(clock: Clock) -> None:
    progress = Progress(3, stream=io.StringIO(), clock=clock)
    progress.trial_started({}, "gpipe", 0)
    clock.now_s += 10
    progress.trial_finished()
    progress.trial_started({}, "gpipe", 1)
    clock.now_s += 4
    assert progress.remaining_s() == 16
    clock.now_s += 1000
    assert progress.remaining_s() == 0


def test_time_between_trials_does_not_count_as_theirs(clock: Clock) -> None:
    progress = Progress(2, stream=io.StringIO(), clock=clock)
    clock.now_s += 50
    progress.trial_started({}, "gpipe", 0)
    clock.now_s += 10
    progress.trial_finished()
    assert progress.remaining_s() == 10


def test_trials_of_an_earlier_run_are_done_and_not_in_the_estimate(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(10, 7, stream=stream, clock=clock)
    progress.trial_started({}, "gpipe", 0)
    clock.now_s += 100
    progress.trial_finished()
    assert stream.getvalue() == "8 of 10 trials done; 1:40 elapsed; about 3:20 left; last: gpipe, repeat 0\n"


def test_a_clock_that_starts_at_zero_is_a_clock(clock: Clock) -> None:
    clock.now_s = 0.0
    progress = Progress(2, stream=io.StringIO(), clock=clock)
    progress.trial_started({}, "gpipe", 0)
    clock.now_s = 7.0
    progress.trial_finished()
    assert progress.remaining_s() == 7


def test_long_times_are_reported_in_hours(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(1, stream=stream, clock=clock)
    progress.trial_started({}, "gpipe", 0)
    clock.now_s += 3 * 3600 + 125
    progress.trial_finished()
    assert "3:02:05 elapsed" in stream.getvalue()


def test_a_terminal_sees_a_bar_with_names_as_they_are(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    stream = Terminal()
    with Progress(2, stream=stream, clock=clock) as progress:
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
