import io
from collections.abc import Sequence

import pytest

from tests.support.terminal import Terminal
from wanbed.results.records.trial_id import TrialId
from wanbed.runner.runs.progress import OVERRUN_SHARE, PLAIN_INTERVAL_S, Kind, Progress, remaining_s

ALIKE = [TrialId(0, "gpipe", repeat) for repeat in range(10)]


class Watched:
    """The progress of so many trials, by default alike and still to come, whose clock a test moves."""

    def __init__(
        self,
        trials: int,
        done: int = 0,
        *,
        pending: Sequence[TrialId] | None = None,
        stream: io.StringIO | None = None,
        now_s: float = 100.0,
    ) -> None:
        self.now_s = now_s
        self.stream = stream or io.StringIO()
        ahead = ALIKE[: trials - done] if pending is None else pending
        self.progress = Progress(trials, done, pending=ahead, stream=self.stream, clock=lambda: self.now_s)

    def begin(self, repeat: int = 0, variant: str = "gpipe", **swept: str) -> None:
        self.progress.trial_started({f"topology.wan.{name}": value for name, value in swept.items()}, variant, repeat)

    def trial(self, lasts_s: float, repeat: int = 0, variant: str = "gpipe", **swept: str) -> None:
        self.begin(repeat, variant, **swept)
        self.now_s += lasts_s
        self.progress.trial_finished()

    @property
    def left_s(self) -> float | None:
        return self.progress.remaining_s()

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


def test_a_line_is_reported_at_each_trials_start() -> None:
    watched = Watched(4)
    with watched.progress:
        watched.trial(3, latency="10ms")
        watched.trial(5, repeat=1, latency="10ms")
    assert watched.lines == [
        "0 of 4 trials done; 0:00 elapsed; running: topology.wan.latency=10ms, gpipe, repeat 0",
        "1 of 4 trials done; 0:03 elapsed; about 0:09 left; running: topology.wan.latency=10ms, gpipe, repeat 1",
    ]


def test_a_pipe_sees_one_line_a_trial_and_one_at_the_end_without_control_characters() -> None:
    watched = Watched(1)
    with watched.progress:
        watched.begin()
        for _ in range(125):
            watched.now_s += PLAIN_INTERVAL_S / 50
            watched.progress.refresh()
        watched.progress.trial_finished()
    assert watched.lines == [
        "0 of 1 trials done; 0:00 elapsed; running: gpipe, repeat 0",
        "1 of 1 trials done; 0:12 elapsed; last: gpipe, repeat 0",
    ]


def test_there_is_no_estimate_before_a_trial_has_ended_and_none_after_the_last() -> None:
    watched = Watched(1)
    assert watched.left_s is None
    watched.begin()
    assert watched.left_s is None
    watched.now_s += 2
    watched.progress.trial_finished()
    assert watched.left_s == 0
    assert "left" not in watched.stream.getvalue()


def test_the_estimate_counts_down_while_a_trial_runs_and_stays_above_zero() -> None:
    watched = Watched(3)
    watched.trial(10)
    watched.begin(repeat=1)
    watched.now_s += 4
    assert watched.left_s == 16
    watched.now_s += 36
    assert watched.left_s == OVERRUN_SHARE * 40 + 10


def test_the_preparation_of_a_sweep_point_is_no_trial_s_time_and_is_still_to_come_for_the_next() -> None:
    watched = Watched(3, pending=[TrialId(0, "gpipe", 0), TrialId(0, "gpipe", 1), TrialId(1, "gpipe", 0)])
    watched.now_s += 50
    watched.trial(10)
    assert watched.left_s == 10 + 50 + 10


def test_the_last_trial_never_has_no_time_left_while_it_runs() -> None:
    watched = Watched(2)
    watched.trial(3)
    watched.begin(repeat=1)
    for _ in range(20):
        watched.now_s += 1
        assert (watched.left_s or 0) > 0


def test_trials_of_an_earlier_run_are_done_and_not_in_the_estimate() -> None:
    watched = Watched(10, 7)
    watched.trial(100)
    watched.begin(repeat=1)
    assert watched.lines == [
        "7 of 10 trials done; 0:00 elapsed; running: gpipe, repeat 0",
        "8 of 10 trials done; 1:40 elapsed; about 3:20 left; running: gpipe, repeat 1",
    ]


def test_a_clock_that_starts_at_zero_is_a_clock() -> None:
    watched = Watched(2, now_s=0.0)
    watched.trial(7)
    assert watched.left_s == 7


def test_long_times_are_reported_in_hours() -> None:
    watched = Watched(1)
    watched.trial(3 * 3600 + 125)
    assert "3:02:05 elapsed" in watched.stream.getvalue()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    return Terminal()


def test_a_terminal_sees_a_bar_with_names_as_they_are(terminal: Terminal) -> None:
    watched = Watched(2, stream=terminal)
    with watched.progress:
        watched.trial(2, variant="[red]gpipe[/]", latency="10ms")
    for words in ("1 of 2 trials done", "[red]gpipe[/]", "━"):
        assert words in terminal.getvalue()


def test_a_terminal_sees_the_share_of_a_running_trial(terminal: Terminal) -> None:
    with Progress(1, stream=terminal) as progress:
        progress.trial_started({}, "gpipe", 0)
        progress.trial_is_at(ALIKE[0], 0.43)
    assert "simulated: 43%" in terminal.getvalue()


def test_an_error_inside_a_sweep_is_passed_on_and_leaves_the_terminal_usable() -> None:
    stream = Terminal()
    with pytest.raises(RuntimeError, match="host is gone"), Watched(2, stream=stream).progress:
        raise RuntimeError("host is gone")
    assert stream.getvalue().rfind("\x1b[?25l") <= stream.getvalue().rfind("\x1b[?25h")


def test_parallel_trials_share_the_time_and_print_seldom() -> None:
    watched = Watched(80, pending=())
    with watched.progress as progress:
        for trial in range(80):
            watched.now_s += 0.125
            progress.trial_ended_beside_others({"topology.wan.latency": f"{trial}ms"}, "gpipe")
    assert watched.lines == [
        "40 of 80 trials done; 0:05 elapsed; about 0:05 left; last: topology.wan.latency=39ms, gpipe",
        "80 of 80 trials done; 0:10 elapsed; last: topology.wan.latency=79ms, gpipe",
    ]


def test_a_single_long_trial_shows_its_share_and_the_time_left_in_plain_lines() -> None:
    watched, (trial,) = Watched(1, pending=()), ALIKE[:1]
    watched.begin()
    for second in range(1, 21):
        watched.now_s += 1
        watched.progress.trial_is_at(trial, second / 20)
    watched.progress.trial_ended_beside_others({}, "gpipe", trial)
    assert watched.lines == [
        "0 of 1 trials done; 0:00 elapsed; running: gpipe, repeat 0",
        "0 of 1 trials done; 0:05 elapsed; about 0:15 left; running: gpipe, repeat 0; simulated: 25%",
        "0 of 1 trials done; 0:10 elapsed; about 0:10 left; running: gpipe, repeat 0; simulated: 50%",
        "0 of 1 trials done; 0:15 elapsed; about 0:05 left; running: gpipe, repeat 0; simulated: 75%",
        "0 of 1 trials done; 0:20 elapsed; about 0:00 left; running: gpipe, repeat 0; simulated: 100%",
        "1 of 1 trials done; 0:20 elapsed; last: gpipe",
    ]


def test_trials_that_wait_take_as_long_as_those_that_run() -> None:
    watched = Watched(4, pending=())
    for seconds, shares in ((0, (0.0, 0.0)), (8, (0.5, 0.25))):
        watched.now_s += seconds
        for trial, share in zip(ALIKE, shares, strict=False):
            watched.progress.trial_is_at(trial, share)
    # They take 16 and 32 s, of which 8 and 24 are left; two of 24 s each wait.
    assert watched.left_s == (8 + 24 + 2 * 24) / 2
    watched.progress.trial_ended_beside_others({}, "gpipe", ALIKE[0])
    watched.progress.trial_is_at(ALIKE[2], 0.0)
    assert watched.left_s == 24 + 32
    assert watched.lines[-1] == "0 of 4 trials done; 0:08 elapsed; about 0:40 left; simulated: 50%, 0%"


def test_the_estimate_of_a_trial_that_begins_anew_begins_anew() -> None:
    watched, (trial,) = Watched(1, pending=()), ALIKE[:1]
    for share in (0.5, 0.9, 0.1, 0.2):
        watched.now_s += 10
        watched.progress.trial_is_at(trial, share)
    assert watched.left_s == pytest.approx(80)


def test_the_end_of_parallel_trials_is_counted_down_to() -> None:
    watched = Watched(4, pending=())
    assert watched.left_s is None
    for _ in range(2):
        watched.now_s += 6
        watched.progress.trial_ended_beside_others({}, "gpipe")
    assert watched.left_s == 12
    watched.now_s += 2
    assert watched.left_s == 10


def test_lines_of_others_are_printed_above_the_bar_as_they_are(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    line = f"wanbed: east to west [red]: {'RTT 20.0 of 20.0 ms, ' * 8}\n"
    with Watched(2, stream=terminal).progress as progress:
        progress.print_above(line)
    assert line in terminal.getvalue().replace("\r\n", "\n")


PREPARATION: Kind = ("preparation",)


def trial(variant: str, point: int = 0) -> Kind:
    return "trial", variant, point


GPIPE, ATLAS = trial("gpipe"), trial("atlas")
AT_TWO_POINTS = [(GPIPE, 10.0), (trial("gpipe", 1), 20.0), (ATLAS, 3.0)]


@pytest.mark.parametrize(
    ("ended", "ahead", "running_s", "left_s"),
    [
        pytest.param([], [GPIPE], 0, None, id="nothing to go by"),
        pytest.param([(PREPARATION, 12.0)], [GPIPE], 0, None, id="nothing but a preparation to go by"),
        pytest.param(
            [(GPIPE, 10.0), (GPIPE, 14.0), (ATLAS, 2.0)],
            [ATLAS, GPIPE, GPIPE],
            0,
            2 + 12 + 12,
            id="the mean of its like",
        ),
        pytest.param(AT_TWO_POINTS, [trial("gpipe", 1)], 0, 20, id="first the same sweep point"),
        pytest.param(AT_TWO_POINTS, [trial("gpipe", 2)], 0, 15, id="then the same variant"),
        pytest.param(AT_TWO_POINTS, [trial("varuna", 0)], 0, 11, id="then any trial"),
        pytest.param(
            [(PREPARATION, 30.0), (GPIPE, 5.0)], [PREPARATION, trial("gpipe", 1)], 0, 35, id="preparations as before"
        ),
        pytest.param([(GPIPE, 10.0)], [GPIPE, GPIPE], 4, 16, id="what runs is counted down"),
        pytest.param(
            [(GPIPE, 10.0)], [GPIPE, GPIPE], 40, OVERRUN_SHARE * 40 + 10, id="what takes longer still has time"
        ),
        pytest.param([(GPIPE, 10.0)], [], 0, 0, id="nothing ahead"),
    ],
)
def test_what_is_ahead_takes_as_long_as_what_was_most_like_it(
    ended: list[tuple[Kind, float]], ahead: list[Kind], running_s: float, left_s: float | None
) -> None:
    assert remaining_s(ended, ahead, running_s, basis="trial") == left_s
