"""Losses over the trial's own clock, and over that of another run of the same training."""

from pathlib import Path

import numpy as np
import pytest

from tests.results.losses_on_paper import BYTES_PER_ITERATION, TOKENS_PER_ITERATION, linear, losing_run
from wanbed.results.reading.losses import ClockError, loss_frame, loss_trials
from wanbed.results.reading.run import load_run

LEARNS = {"dp": linear(5.0, 0.1)}

TIMES = {"dp": None}

FAR = ({"topology.wan.latency": "10ms"}, {"topology.wan.latency": "40ms"})


def test_a_loss_is_the_mean_over_the_replicas_at_the_end_of_its_iteration(tmp_path: Path) -> None:
    (trial,) = loss_trials(load_run(losing_run(tmp_path, losses=LEARNS, evaluate_every=5)))
    assert trial.training.loss == pytest.approx([5.0 - 0.1 * k for k in range(10)])
    assert trial.training.time_s == pytest.approx([0.1 * (k + 1) for k in range(10)])
    assert trial.training.tokens is not None
    assert trial.training.tokens.tolist() == [TOKENS_PER_ITERATION * (k + 1) for k in range(10)]
    assert trial.training.wan_bytes == pytest.approx([BYTES_PER_ITERATION * (k + 1) for k in range(10)])
    assert trial.held_out is not None
    assert trial.held_out.iterations.tolist() == [4, 9]
    assert trial.held_out.loss == pytest.approx([4.7, 4.2])
    assert trial.held_out.time_s == pytest.approx([0.5, 1.0])
    assert trial.provenance.text == "losses and clock measured"


def test_replicas_of_which_one_diverged_have_no_mean(tmp_path: Path) -> None:
    run = load_run(losing_run(tmp_path, losses={"dp": lambda _r, k, p: float("nan") if k == 3 and p else 2.0}))
    (trial,) = loss_trials(run)
    assert np.isnan(trial.training.loss).tolist() == [k == 3 for k in range(10)]


def test_iteration_k_is_at_the_end_of_iteration_k_on_a_joined_clock(tmp_path: Path) -> None:
    run = load_run(losing_run(tmp_path, losses=LEARNS, repeats=2))
    clock = load_run(losing_run(tmp_path, name="clock", losses=TIMES, iteration_ms=30, simulated=True))
    trials = loss_trials(run, clock)
    assert [trial.repeat for trial in trials] == [0, 1]
    for trial in trials:
        assert trial.training.time_s == pytest.approx([0.03 * (k + 1) for k in range(10)])
        assert trial.training.loss[0] == pytest.approx(5.0 + 0.01 * trial.repeat)
        assert trial.provenance.text == f"losses measured, clock simulated (run {clock.path.name})"


def test_a_training_is_joined_with_every_sweep_point_of_a_clock_that_sweeps_the_network(tmp_path: Path) -> None:
    run = load_run(losing_run(tmp_path, losses=LEARNS))
    clock = load_run(losing_run(tmp_path, name="clock", losses=TIMES, points=FAR, simulated=True))
    trials = loss_trials(run, clock)
    assert [dict(trial.values) for trial in trials] == list(map(dict, FAR))
    assert [trial.training.end_s for trial in trials] == pytest.approx([1.0, 2.0])


def test_a_clock_in_virtual_time_is_called_so(tmp_path: Path) -> None:
    run = load_run(losing_run(tmp_path, losses=LEARNS))
    clock = load_run(losing_run(tmp_path, name="clock", losses=TIMES, manifest={"clock": "virtual"}))
    (trial,) = loss_trials(run, clock)
    assert trial.provenance.text.startswith("losses measured, clock of virtual time (run clock-")


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"iterations": 8}, "training.iterations: 10, and 8 in the run of the clock"),
        ({"training": {"precision": "bf16"}}, "training.precision: fp32, and bf16 in the run of the clock"),
        ({"losses": {"other": None}}, "has no such variant"),
        ({"points": ({"training.microbatches": "8"},)}, "no sweep point of these values"),
        ({"repeats": 2}, "it has 2 repeats"),
    ],
)
def test_another_training_is_refused_in_one_line(tmp_path: Path, changes: dict[str, object], refusal: str) -> None:
    run = load_run(losing_run(tmp_path, losses=LEARNS, repeats=3))
    settings = {"name": "clock", "losses": TIMES, "simulated": True, **changes}
    clock = load_run(losing_run(tmp_path, **settings))  # type: ignore[arg-type]
    with pytest.raises(ClockError, match=refusal) as refused:
        loss_trials(run, clock)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith(f"--clock: {clock.path} does not time dp, repeat ")


def test_a_model_and_a_number_of_microbatches_belong_to_a_training(tmp_path: Path) -> None:
    run = load_run(losing_run(tmp_path, losses=LEARNS))
    clock = load_run(losing_run(tmp_path, name="clock", losses=TIMES, simulated=True))
    experiment = {**clock.manifest["experiment"], "model": {"layers": 2, "hidden": 128}}
    for field, changed in (
        ("model.hidden", {"experiment": experiment}),
        (
            "training.microbatches",
            {
                "sweep_points": [
                    {"index": 0, "sweep_point": {}, "variants": {"dp": {"placement": [[0], [1]], "microbatches": 8}}}
                ]
            },
        ),
    ):
        clock.manifest.update(changed)  # type: ignore[attr-defined]
        with pytest.raises(ClockError, match=field):
            loss_trials(run, clock)
        clock = load_run(clock.path)


def test_a_run_that_learnt_nothing_has_nothing_to_time(tmp_path: Path) -> None:
    run = load_run(losing_run(tmp_path, losses=TIMES))
    assert loss_trials(run) == []
    assert loss_frame(run).empty
    with pytest.raises(ClockError, match="has no losses to time"):
        loss_trials(run, run)


def test_the_frame_has_a_row_for_each_loss_and_names_the_clock(tmp_path: Path) -> None:
    run = load_run(losing_run(tmp_path, losses=LEARNS, evaluate_every=5))
    clock = load_run(losing_run(tmp_path, name="clock", losses=TIMES, points=FAR, simulated=True))
    frame = loss_frame(run, clock)
    assert len(frame) == 2 * (10 + 2)
    assert frame.columns[0] == "topology.wan.latency"
    assert set(frame["clock"]) == {"simulated"}
    assert set(frame["clock_run"]) == {clock.path.name}
    assert set(loss_frame(run)["clock_run"]) == {""}
