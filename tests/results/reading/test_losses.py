"""Losses over the trial's own clock, and over that of another run of the same training."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.results.losses_on_paper import BYTES_PER_ITERATION, TOKENS_PER_ITERATION, linear, losing_run
from wanbed.results.reading.losses import ClockError, LossCurve, counted_until, loss_frame, loss_trials
from wanbed.results.reading.run import Run, load_run

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


@pytest.mark.parametrize(
    ("encoded", "field"),
    [
        ({"wire": "fp8"}, "variants.transport.activation.wire: int8, and fp8 in the run of the clock"),
        ({"error_feedback": True}, "variants.transport.activation.error_feedback: not set, and true in the run of"),
        ({"boundaries": [1]}, r"variants.transport.activation.boundaries: \[0\], and \[1\] in the run of the clock"),
        ({"encoded_bytes": [5]}, None),
    ],
)
def test_the_format_of_activations_belongs_to_a_training(
    tmp_path: Path, encoded: dict[str, object], field: str | None
) -> None:
    def with_encoding(run: Run, activation: dict[str, object]) -> Run:
        places = {"placement": [[0], [1]], "microbatches": 4, "activation": activation}
        run.manifest["sweep_points"] = [{"index": 0, "sweep_point": {}, "variants": {"dp": places}}]  # type: ignore[index]
        return run

    own = {"wire": "int8", "error_feedback": False, "boundaries": [0], "encoded_bytes": [4]}
    run = with_encoding(load_run(losing_run(tmp_path, losses=LEARNS)), own)
    clock = load_run(losing_run(tmp_path, name="clock", losses=TIMES, simulated=True))
    with_encoding(clock, {**own, **encoded})
    if field is None:
        assert loss_trials(run, clock)
    else:
        with pytest.raises(ClockError, match=field):
            loss_trials(run, clock)


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


finite = st.floats(0.01, 100, allow_nan=False)


@st.composite
def curves(draw: st.DrawFn) -> LossCurve:
    losses = draw(st.lists(finite, min_size=1, max_size=20))
    steps = draw(st.lists(st.floats(0, 10), min_size=len(losses), max_size=len(losses)))
    time_s = np.cumsum(steps)
    return LossCurve(np.arange(len(losses)), np.array(losses), time_s, float(time_s[-1]))


def curve(losses: list[float], time_s: list[float]) -> LossCurve:
    return LossCurve(np.arange(len(losses)), np.array(losses), np.array(time_s), time_s[-1])


def test_the_loss_at_a_time_is_that_of_the_last_iteration_that_had_ended() -> None:
    own = curve([4.0, 3.0, 3.5], [1.0, 2.0, 3.0])
    assert [own.loss_at(at) for at in (0.9, 1.0, 1.9, 2.5, 3.0, 3.1)] == [None, 4.0, 4.0, 3.0, 3.5, None]


def test_the_time_to_a_loss_is_the_end_of_the_first_iteration_that_reached_it() -> None:
    own = curve([4.0, 3.0, 3.5, 2.0], [1.0, 2.0, 3.0, 4.0])
    assert [own.time_to_s(loss) for loss in (4.0, 3.6, 3.0, 2.9, 1.9)] == [1.0, 2.0, 2.0, 4.0, None]


def test_a_training_that_diverged_has_no_loss_and_reaches_none() -> None:
    own = curve([4.0, float("nan")], [1.0, 2.0])
    assert own.loss_at(2.0) is None
    assert own.time_to_s(3.0) is None


@given(curves(), finite)
def test_at_the_time_to_a_loss_that_loss_has_been_reached(own: LossCurve, loss: float) -> None:
    reached = own.time_to_s(loss)
    if reached is None:
        assert own.loss.min() > loss
    else:
        assert min(own.loss[own.time_s <= reached]) <= loss
        assert not np.any(own.loss[own.time_s < reached] <= loss)


@given(curves(), finite, finite)
def test_a_lower_loss_never_takes_less_time(own: LossCurve, one: float, other: float) -> None:
    low, high = (own.time_to_s(loss) for loss in sorted((one, other)))
    assert low is None or (high is not None and high <= low)


@given(curves(), st.floats(0.1, 10), finite)
def test_a_clock_that_is_so_many_times_slower_makes_every_time_so_many_times_longer(
    own: LossCurve, factor: float, loss: float
) -> None:
    slower = LossCurve(own.iterations, own.loss, own.time_s * factor, own.end_s * factor)
    one, other = own.time_to_s(loss), slower.time_to_s(loss)
    assert (one is None) == (other is None)
    assert one is None or other == pytest.approx(one * factor)


def test_between_two_readings_a_counter_rises_evenly() -> None:
    counted = counted_until(np.array([100, 200, 400]), np.array([0, 10, 50]), np.array([50, 150, 300, 500]))
    assert counted.tolist() == [0, 5, 30, 50]


def test_values_of_other_iterations_are_refused() -> None:
    with pytest.raises(ValueError, match="2 values for 1 iterations"):
        LossCurve(np.array([0]), np.array([1.0, 2.0]), np.array([1.0]), 1.0)
    with pytest.raises(ValueError, match="do not rise"):
        LossCurve(np.array([1, 0]), np.array([1.0, 2.0]), np.array([1.0, 2.0]), 2.0)
