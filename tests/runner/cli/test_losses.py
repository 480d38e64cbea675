"""``wanbed compare --metric`` and ``--clock`` of compare and report."""

import json
from pathlib import Path

import pytest

import wanbed
from tests.results.losses_on_paper import linear, losing_run
from tests.support.runner.commands_here import called, refusal
from tests.support.runner.commands_here import wanbed as wanbed_here

LEARNS = {"slow": linear(5.0, 0.1), "fast": linear(5.0, 0.2)}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return losing_run(tmp_path, losses=LEARNS, repeats=3, evaluate_every=2)


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    return losing_run(
        tmp_path, name="clock", losses=dict.fromkeys(LEARNS), iteration_ms={"slow": 10, "fast": 400}, simulated=True
    )


def test_a_metric_of_losses_is_judged_and_its_clock_decides(run: Path, clock: Path) -> None:
    pair = ("compare", run, run, "--pair", "slow=fast", "--json")
    own = wanbed_here(*pair, "--metric", "time-to", "4.75")
    assert (own.exit_code, json.loads(own.stdout)["verdict"]) == (0, "improved")
    joined = wanbed_here(*pair, "--metric", "time-to", "4.75", "--clock", clock)
    assert (joined.exit_code, json.loads(joined.stdout)["verdict"]) == (1, "regressed")
    assert f"A and B: losses measured, clock simulated (run {clock.name})." in joined.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--clock", "x"), "--clock: it times losses"),
        (("--metric", "loss-at", "1s", "--noise", "3"), "--noise: it measures iteration times"),
        (("--metric", "loss-at", "soon"), "--metric loss-at soon: 'soon' is not a duration"),
    ],
)
def test_options_that_do_not_go_together_are_refused(run: Path, options: tuple[str, ...], words: str) -> None:
    assert words in refusal("compare", run, run, "--pair", "slow=fast", *options)


def test_a_report_with_another_training_s_clock_is_not_written(run: Path, tmp_path: Path) -> None:
    other = losing_run(tmp_path, name="other", losses=dict.fromkeys(LEARNS), iterations=5, simulated=True)
    words = "training.iterations: 10, and 5 in the run of the clock"
    assert words in refusal("report", run, "--clock", other, "--output", tmp_path / "report.html")


def test_one_clock_times_all_runs_and_otherwise_each_has_its_own(run: Path, clock: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    called("report", run, run, "--clock", clock, "--output", page)
    called("report", run, run, "--clock", clock, "--clock", clock, "--output", page)
    words = "2 are given, and 1 runs to time"
    assert words in called("report", run, "--clock", clock, "--clock", clock, "--output", page, status=2).stderr


def test_python_does_the_same(run: Path, clock: Path) -> None:
    comparison = wanbed.compare(run, run, pair={"slow": "fast"}, metric="time-to 4.75", clock=clock)
    assert comparison.verdict == "regressed"
    frame = wanbed.losses(run, clock=clock)
    held_out = frame[(frame.split == "held_out") & (frame.variant == "fast") & (frame.repeat == 0)]
    assert held_out.time_s.tolist() == pytest.approx([0.8, 1.6, 2.4, 3.2, 4.0])
    with pytest.raises(wanbed.InputError, match=r"^clock: it times losses, give a metric"):
        wanbed.compare(run, run, pair={"slow": "fast"}, clock=clock)
