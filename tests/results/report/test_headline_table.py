"""The notes beneath the main table explain its figures, as far as its rows have them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from wanbed import results
from wanbed.results.reading.headline import headline
from wanbed.results.report.headline_table import interval_note, saturation_note

BuildRun = Callable[..., Path]


def test_the_note_explains_the_interval(build_run: BuildRun) -> None:
    three, five = (
        interval_note(headline(results.load(build_run(repeats=repeats, latencies=("10ms",))))) for repeats in (3, 5)
    )
    assert "from 3 repeats of 2 measured iterations" in three
    assert "with 3 repeats about 20 times" in three
    assert "from 5 repeats of 2 measured iterations" in five
    assert "hardly more than their range" not in five


def test_a_simulation_has_no_interval_to_explain(build_run: BuildRun) -> None:
    assert interval_note(headline(results.load(build_run(manifest={"engine": "simulate"})))) == ""


def test_a_simulation_that_draws_has_one(build_run: BuildRun) -> None:
    run = results.load(build_run(manifest={"engine": "simulate"}, repeats=3, drawn=True))
    assert "95 % bootstrap interval" in interval_note(headline(run))


@pytest.mark.parametrize("repeats", [1, 2])
def test_below_three_repeats_the_note_says_why_there_is_none(build_run: BuildRun, repeats: int) -> None:
    note = interval_note(headline(results.load(build_run(repeats=repeats, latencies=("10ms",)))))
    assert "bootstrap" not in note
    assert "Fewer than 3 repeats have no interval" in note


def test_a_saturated_machine_is_explained(build_run: BuildRun) -> None:
    run = results.load(build_run(latencies=("10ms",), variants=("x",)))
    busy = {"machine_load": {"saturated": 0.02, "network": 0.7}}
    trials = tuple(replace(trial, facts={**trial.facts, **busy}) for trial in run.trials)
    assert "Saturated:" in saturation_note(headline(replace(run, trials=trials)))
    assert saturation_note(headline(run)) == ""
