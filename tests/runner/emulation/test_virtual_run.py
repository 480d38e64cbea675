import io
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import Clock
from tests.support.terminal import Terminal
from wanbed.results.records.run_store import CalibrationRow, RunStore, TrialRecord
from wanbed.results.records.span_log import RankPlace, Span, SpanLogContents
from wanbed.results.records.trial_id import TrialId
from wanbed.runner.emulation.virtual_run import (
    BESIDE_TRIALS_S,
    MARGIN,
    VirtualProgress,
    quiet_patience_s,
    serial_trial_s,
)
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs import progress
from wanbed.runner.runs.progress import Progress
from wanbed.runner.runs.run_folder import begin_run
from wanbed.runner.simulator.variant_simulation import simulate_variant


def experiment(**changes: Any) -> Experiment:
    return parse_experiment(
        {
            "topology": {
                "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
                "wan": {"latency": "40ms", "rate": "1Gbit"},
                "intra": {"latency": "50us", "rate": "1Gbit"},
            },
            "model": "gpt-tiny",
            "compute": {"forward": "10ms", "backward": "20ms", "recompute": "10ms", "activation": "8MiB"},
            "training": {"microbatches": 4, "iterations": 3},
            "clock": "virtual",
            **changes,
        },
        "exp.yaml",
        Path(),
    )


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "varuna"])
@pytest.mark.parametrize("pipelines", [1, 2])
def test_no_simulated_trial_exceeds_the_serial_bound(schedule: str, pipelines: int) -> None:
    training = {"microbatches": 4, "iterations": 3, "pipelines": pipelines}
    (point,) = experiment(variants=[{"name": "v", "schedule": schedule}], training=training).points()
    (variant,) = point.variants
    simulated_s = max(simulate_variant(point.topology, variant, 3).spans.end_ns) / 1e9
    assert simulated_s < serial_trial_s(point, variant)


def test_the_longest_trial_of_a_sweep_decides() -> None:
    short, long = experiment(), experiment(sweep={"topology.wan.latency": ["40ms", "400ms"]})
    assert quiet_patience_s(long) > quiet_patience_s(short) > BESIDE_TRIALS_S
    longest_s = max(serial_trial_s(point, point.variants[0]) for point in long.points())
    assert quiet_patience_s(long) == BESIDE_TRIALS_S + MARGIN * longest_s


def test_loss_makes_a_path_slower() -> None:
    (clean,) = experiment().points()
    wan = {"latency": "40ms", "rate": "1Gbit", "loss": "1%"}
    topology = {"datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}], "wan": wan}
    (lossy,) = experiment(topology=topology).points()
    assert serial_trial_s(lossy, lossy.variants[0]) > 2 * serial_trial_s(clean, clean.variants[0])


LOG = SpanLogContents(RankPlace(0, "east-0", "east", 0, 0, 0), (Span("forward", 1, 0, 0, 1_000_000),), complete=True)

CALIBRATED = CalibrationRow("east", "west", "wan", 20.0, 20.0, 95e6, 95e6, {}, within_tolerance=True)

EXPERIMENT: Experiment = parse_experiment(
    {
        "name": "small",
        "topology": {
            "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
            "wan": {"latency": "10ms"},
        },
        "variants": [{"name": "gpipe", "schedule": "gpipe"}, {"name": "varuna", "schedule": "varuna"}],
        "repeats": 2,
    },
    "small.yaml",
    Path(),
)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return begin_run(EXPERIMENT, tmp_path, {"dilation": 1.0})


def end(store: RunStore, variant: str, repeat: int) -> None:
    store.write_trial(TrialRecord(TrialId(0, variant, repeat), [LOG]))


def test_trials_are_reported_as_they_appear_in_the_folder(store: RunStore) -> None:
    stream, clock = io.StringIO(), Clock()
    progress = VirtualProgress(EXPERIMENT, store, stream=stream, clock=clock)
    progress.look()
    clock.now_s = 20.0
    store.write_calibration(0, [CALIBRATED])
    progress.look()
    clock.now_s = 23.0
    end(store, "gpipe", 0)
    progress.look()
    clock.now_s = 30.0
    progress.look()
    end(store, "varuna", 0)
    end(store, "gpipe", 1)
    end(store, "varuna", 1)
    progress.look()
    assert stream.getvalue().splitlines() == [
        "0 of 4 trials done; 0:20 elapsed; running: gpipe, repeat 0",
        "1 of 4 trials done; 0:23 elapsed; about 0:09 left; running: varuna, repeat 0",
        "2 of 4 trials done; 0:30 elapsed; about 0:10 left; running: gpipe, repeat 1",
        "3 of 4 trials done; 0:30 elapsed; about 0:07 left; running: varuna, repeat 1",
        "4 of 4 trials done; 0:30 elapsed; last: varuna, repeat 1",
    ]


def test_what_was_finished_before_counts_as_done(store: RunStore) -> None:
    end(store, "gpipe", 0)
    store.write_calibration(0, [CALIBRATED])
    stream, clock = io.StringIO(), Clock()
    progress = VirtualProgress(EXPERIMENT, store, stream=stream, clock=clock)
    clock.now_s = 6.0
    progress.look()
    clock.now_s = 8.0
    end(store, "varuna", 0)
    progress.look()
    assert stream.getvalue().splitlines() == [
        "1 of 4 trials done; 0:06 elapsed; running: varuna, repeat 0",
        "2 of 4 trials done; 0:08 elapsed; about 0:04 left; running: gpipe, repeat 1",
    ]


def test_a_terminal_sees_one_bar_and_above_it_what_the_guest_prints(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    with VirtualProgress(EXPERIMENT, store, stream=stream, clock=Clock()) as progress:
        for part in (b"wanbed: measuring ", b"the links\nwanbed: cut"):
            progress.standard_error.write(part)
        assert "cut" not in stream.getvalue()
    shown = stream.getvalue()
    assert "0 of 4 trials done" in shown or "━" in shown
    assert "wanbed: measuring the links\n" in shown
    assert shown.index("the links") < shown.index("wanbed: cut")


def test_each_calibration_and_each_trial_changes_what_a_look_gives(store: RunStore) -> None:
    progress = VirtualProgress(EXPERIMENT, store, stream=io.StringIO())
    seen = [progress.look(), progress.look()]
    store.write_calibration(0, [CALIBRATED])
    seen.append(progress.look())
    end(store, "gpipe", 0)
    seen.append(progress.look())
    assert seen[0] == seen[1]
    assert len(set(seen)) == 3


def test_inside_nothing_is_reported_since_its_clock_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "in_virtual_time", lambda: True)
    stream = io.StringIO()
    with Progress(1, stream=stream) as inside:
        inside.trial_started({}, "gpipe", 0)
        inside.trial_finished()
    assert stream.getvalue() == ""
