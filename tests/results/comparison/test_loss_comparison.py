"""Runs compared by what they learnt in a time, with seeds as what chance draws."""

from pathlib import Path

import pytest

from tests.results.losses_on_paper import linear, losing_run
from wanbed.ground.errors import InputError
from wanbed.results.comparison.comparison import Comparison, check, compare
from wanbed.results.comparison.judgement import parse_metric
from wanbed.results.comparison.markdown import markdown
from wanbed.results.reading.run import Run, load_run

SLOW, FAST = {"slow": linear(5.0, 0.1)}, {"fast": linear(5.0, 0.2)}


def learnt(folder: Path, **settings: object) -> Run:
    options = {"losses": {**SLOW, **FAST}, "repeats": 3, "evaluate_every": 2, **settings}
    return load_run(losing_run(folder, **options))  # type: ignore[arg-type]


def judged(run: Run, metric: str, one: str = "slow", other: str = "fast", clock: Run | None = None) -> Comparison:
    checked = check(run, run, names=[(one, other)])
    return compare(checked, metric=parse_metric(metric.split()), clocks=(clock, clock))


def test_a_lower_loss_after_the_same_time_is_an_improvement(tmp_path: Path) -> None:
    run = learnt(tmp_path)
    found = judged(run, "loss-at 1s")
    (judgement,) = found.judgements
    assert found.verdict == "improved"
    assert judgement.pair.a.median_s == pytest.approx(4.21)
    assert judgement.pair.b.median_s == pytest.approx(3.31)
    assert judgement.interval is not None
    assert "lower (95 % interval: " in judgement.reading
    assert found.notes == ("Judged is the held-out loss.", "A and B: losses and clock measured.")
    assert judged(run, "loss-at 1s", "fast", "slow").verdict == "regressed"


def test_a_loss_that_takes_longer_to_reach_is_a_regression(tmp_path: Path) -> None:
    found = judged(learnt(tmp_path), "time-to 4.75", "fast", "slow")
    (judgement,) = found.judgements
    assert (judgement.pair.a.median_s, judgement.pair.b.median_s) == (pytest.approx(0.4), pytest.approx(0.6))
    assert found.verdict == "regressed"


def test_the_training_loss_counts_where_something_was_not_evaluated(tmp_path: Path) -> None:
    found = judged(learnt(tmp_path, evaluate_every=None), "loss-at 1s")
    assert found.judgements[0].pair.a.median_s == pytest.approx(4.11)
    assert found.notes[0].startswith("Judged is the training loss")


def test_repeats_of_one_seed_are_no_draws_of_chance(tmp_path: Path) -> None:
    found = judged(learnt(tmp_path, seeds=(7, 7, 7)), "loss-at 1s")
    (judgement,) = found.judgements
    assert found.verdict == "no_data"
    assert judgement.ratio is not None
    assert "1 seed, no interval: run both with repeats: 5 and training.vary_seed: true" in judgement.reading


def test_a_loss_that_only_one_side_ever_reaches_is_a_verdict_without_a_ratio(tmp_path: Path) -> None:
    run = learnt(tmp_path)
    found = judged(run, "time-to 3.5", "fast", "slow")
    assert found.verdict == "regressed"
    assert found.judgements[0].ratio is None
    assert found.judgements[0].reading.startswith("3 of 3 trials of B never reached a loss of 3.5")
    assert judged(run, "time-to 3.5").verdict == "improved"
    assert judged(run, "time-to 1").verdict == "no_data"


def test_a_loss_that_some_seeds_do_not_reach_is_not_judged(tmp_path: Path) -> None:
    assert judged(learnt(tmp_path), "time-to 4.205", "slow", "fast").verdict == "no_data"


def test_after_the_end_of_a_training_there_is_no_loss(tmp_path: Path) -> None:
    found = judged(learnt(tmp_path, iteration_ms={"slow": 100, "fast": 50}), "loss-at 800ms")
    assert found.verdict == "no_data"
    assert found.judgements[0].reading.startswith("3 of 3 trials of B had no loss at 800ms")


def test_a_clock_of_another_run_decides_what_is_faster_and_is_named_everywhere(tmp_path: Path) -> None:
    run = learnt(tmp_path)
    clock = load_run(
        losing_run(
            tmp_path,
            name="clock",
            losses=dict.fromkeys(("slow", "fast")),
            iteration_ms={"slow": 10, "fast": 400},
            simulated=True,
        )
    )
    found = judged(run, "time-to 4.75", "slow", "fast", clock)
    (judgement,) = found.judgements
    assert (judgement.pair.a.median_s, judgement.pair.b.median_s) == (pytest.approx(0.06), pytest.approx(1.6))
    assert found.verdict == "regressed"
    marked = f"losses measured, clock simulated (run {clock.path.name})"
    assert found.notes[1] == f"A and B: {marked}."
    assert found.document()["notes"] == list(found.notes)
    assert "clock simulated" in markdown(found)


def test_the_document_names_the_metric_and_its_figures(tmp_path: Path) -> None:
    document = judged(learnt(tmp_path), "loss-at 1s").document()
    (pair,) = document["sweep_points"]
    assert document["metric"] == "loss-at 1s"
    assert pair["a_loss"] == pytest.approx(4.21)
    assert pair["seeds"] == {"a": 3, "b": 3}
    assert not {"a_iteration_time_s", "repeats", "iterations"} & pair.keys()


def test_a_run_that_learnt_nothing_is_refused(tmp_path: Path) -> None:
    run = learnt(tmp_path, losses={"slow": None, "fast": None}, evaluate_every=None)
    with pytest.raises(InputError, match=r"--metric: A, .* has no losses"):
        judged(run, "loss-at 1s")


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("loss-at", "write loss-at and a time"),
        ("loss-at 60", "loss-at 60: '60' is not a duration"),
        ("time-to 0", "'0' is no loss"),
        ("time-to nan", "'nan' is no loss"),
        ("time-to -1", "'-1' is no loss"),
        ("speed 3", "write loss-at and a time"),
    ],
)
def test_a_metric_that_there_is_not_is_refused(words: str, refusal: str) -> None:
    with pytest.raises(InputError, match=refusal):
        parse_metric(words.split())
