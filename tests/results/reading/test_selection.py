import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from wanbed.results.reading.run import load_run
from wanbed.results.reading.selection import (
    MAX_CHOICES_LISTED,
    NoSuchTrialError,
    NoTrialsError,
    Selection,
    choices,
    finished_trials,
)
from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.records.run_store import RunError
from wanbed.results.records.trial_id import TrialId

LATENCY, CAP = "topology.wan.latency", "topology.wan.node_pair_rate"


SWEEP = [{LATENCY: latency, CAP: cap} for cap in ("1Gbit", "5Gbit") for latency in ("10ms", "40ms")]
MANIFEST = {"sweep_points": [{"index": index, "sweep_point": values} for index, values in enumerate(SWEEP)]}


def trial(point: int, variant: str, repeat: int = 0) -> StoredTrial:
    return StoredTrial(TrialId(point, variant, repeat), Path("trial"), MANIFEST, {})


TRIALS = [trial(point, variant, repeat) for point in range(4) for variant in ("gpipe", "atlas") for repeat in range(2)]


def chosen(**asked: object) -> list[tuple[int, str, int]]:
    found = Selection(**asked).of(TRIALS)  # type: ignore[arg-type]
    return [(each.point, each.variant, each.repeat) for each in found]


def test_everything_is_selected_unless_something_is_asked_for() -> None:
    assert Selection().of(TRIALS) == TRIALS


def test_sweep_points_are_selected_by_index_or_by_swept_values_all_of_which_hold() -> None:
    assert {point for point, *_ in chosen(points=["3"])} == {3}
    assert {point for point, *_ in chosen(points=[f"{LATENCY}=40ms"])} == {1, 3}
    assert {point for point, *_ in chosen(points=[f" {LATENCY} = 40ms", f"{CAP}=1Gbit"])} == {1}


def test_several_indices_or_values_of_one_path_are_alternatives() -> None:
    assert {point for point, *_ in chosen(points=["1", "2"])} == {1, 2}
    assert {point for point, *_ in chosen(points=[f"{LATENCY}=10ms", f"{LATENCY}=40ms", f"{CAP}=5Gbit"])} == {2, 3}


def test_variant_and_repeat_narrow_it_down() -> None:
    assert chosen(points=["2"], variant="atlas", repeat=1) == [(2, "atlas", 1)]


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"points": ["7"]}, f"--point 7: there is none such, choose of: 0 ({LATENCY}=10ms, {CAP}=1Gbit); 1 ("),
        ({"points": [f"{LATENCY}=20ms"]}, f"--point {LATENCY}=20ms: there is none such, choose of: 0 ("),
        ({"points": ["latency=10ms"]}, "--point latency=10ms: there is none such, choose of: "),
        (
            {"points": ["1", f"{CAP}=5Gbit"]},
            f"--point 1 --point {CAP}=5Gbit: no sweep point is all of these, give fewer",
        ),
        ({"variant": "Atlas"}, "--variant Atlas: there is none such, choose of: gpipe; atlas"),
        ({"repeat": 2}, "--repeat 2: there is none such, choose of: 0; 1"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(asked: dict[str, object], text: str) -> None:
    with pytest.raises(NoSuchTrialError) as refused:
        chosen(**asked)
    assert str(refused.value).startswith(text)


def test_many_choices_are_not_all_listed() -> None:
    text = choices(range(MAX_CHOICES_LISTED + 5))
    assert text.endswith(f"; {MAX_CHOICES_LISTED - 1} and 5 more")
    assert choices([]) == "there is nothing to choose"


def test_the_trials_of_a_run_are_those_that_loading_it_finds_in_the_same_order(build_run: Callable[..., Path]) -> None:
    path = build_run(variants=("zeta", "alpha"), repeats=2)
    manifest, trials = finished_trials(path)
    run = load_run(path)
    assert manifest == run.manifest
    assert [(each.point, each.variant, each.repeat) for each in trials] == [
        (each.point, each.variant, each.repeat) for each in run.trials
    ]
    assert [each.point for each in trials] == run.summary["sweep_point"].tolist()
    assert trials[-1].title == f"alpha, {LATENCY} 40ms, repeat 1"


def test_a_run_of_which_nothing_has_finished_has_no_trials(build_run: Callable[..., Path]) -> None:
    path = build_run(finished_trials=0)
    with pytest.raises(NoTrialsError, match="no trial of this run has finished"):
        finished_trials(path)


def test_a_complete_run_without_its_trials_is_not_one_to_continue(build_run: Callable[..., Path]) -> None:
    path = build_run()
    shutil.rmtree(path / "trials")
    with pytest.raises(NoTrialsError, match=r"the run is complete, .* restore that folder, or run again$"):
        finished_trials(path)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run's folder"):
        finished_trials(tmp_path)


def test_a_trial_that_does_not_say_which_it_is_is_refused(build_run: Callable[..., Path]) -> None:
    path = build_run(finished_trials=1)
    (facts,) = path.glob("trials/*/*/*/trial.json")
    facts.write_text(json.dumps({"sweep_point": 0}), encoding="utf-8")
    with pytest.raises(RunError, match=r"trial\.json: variant: this field is missing \(and 1 more\)"):
        finished_trials(path)


def test_a_sweep_point_of_the_sweep_of_which_nothing_has_finished_is_reported_as_such() -> None:
    sweep = {**{each.point: each.values for each in TRIALS}, 9: {LATENCY: "90ms", CAP: "9Gbit"}}
    for asked in (["9"], [f"{LATENCY}=90ms"]):
        with pytest.raises(NoSuchTrialError, match=r"no trial of it has finished, continue the run .* choose of: 0 "):
            Selection(points=asked).of(TRIALS, sweep)
    with pytest.raises(NoSuchTrialError, match="--point 8: there is none such"):
        Selection(points=["8"]).of(TRIALS, sweep)
    crossing = {9: {LATENCY: "20ms", CAP: "5Gbit"}}
    with pytest.raises(NoSuchTrialError, match=f"--point {LATENCY}=20ms: no trial of it has finished"):
        Selection(points=[f"{CAP}=5Gbit", f"{LATENCY}=20ms"]).of(TRIALS, crossing)


@pytest.mark.parametrize(("engine", "command"), [("simulate", "wanbed simulate"), ("emulate", "wanbed run")])
def test_a_run_without_a_finished_trial_goes_on_by_the_command_that_began_it(
    engine: str, command: str, build_run: Callable[..., Path]
) -> None:
    with pytest.raises(NoTrialsError, match=f"continue it with {command} --resume$"):
        finished_trials(build_run(finished_trials=0, manifest={"engine": engine}))
    begun = [StoredTrial(TrialId(0, "gpipe", 0), Path("trial"), {**MANIFEST, "engine": engine}, {})]
    with pytest.raises(NoSuchTrialError, match=f"continue the run with {command} --resume, "):
        Selection(["3"]).of(begun, dict(enumerate(SWEEP)))
