"""A run's folder that somebody has changed is refused before it goes on."""

import shutil
from pathlib import Path

import pytest

from wanbed.ground.strict_model import InputError
from wanbed.results.reading.run_documents import read_manifest, read_trials
from wanbed.results.records.run_store import TRIAL_FACTS, RunStore
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.runs.continuable import check_same_substrate
from wanbed.runner.runs.run_folder import latest_run
from wanbed.runner.simulated_runs.process_pool import ProcessPool
from wanbed.runner.simulated_runs.simulated_run import simulated_run

EXPERIMENT = parse_experiment(
    {
        "name": "small",
        "engine": "simulate",
        "topology": {
            "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
            "wan": {"latency": "10ms"},
        },
        "variants": [{"name": "a", "schedule": "gpipe"}, {"name": "b", "schedule": "1f1b"}],
    },
    "small.yaml",
    Path(),
)


def ignored(_line: str) -> None: ...


def go_on(root: Path) -> Path:
    return simulated_run(EXPERIMENT, root, resume=True, pool=ProcessPool(1), log=ignored)


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """The folder of the first of two finished trials, in a run that has not ended."""
    store = RunStore.open(go_on(tmp_path / "runs"))
    store.update_manifest({"complete": False})
    return store.trial_path(0, "a", 0)


def refusal(root: Path) -> str:
    with pytest.raises(InputError) as refused:
        go_on(root)
    store = latest_run(EXPERIMENT, root)
    assert store is not None
    assert store.manifest["complete"] is False
    assert not list(root.glob("**/*.partial"))
    return str(refused.value)


def test_a_trial_that_is_missing_runs_again(trial: Path, tmp_path: Path) -> None:
    shutil.rmtree(trial)
    run = go_on(tmp_path / "runs")
    assert len(read_trials(run, read_manifest(run))) == 2


@pytest.mark.parametrize("name", [TRIAL_FACTS, "spans.parquet"])
def test_a_trial_that_lacks_a_file_is_named_with_the_remedy(trial: Path, tmp_path: Path, name: str) -> None:
    (trial / name).unlink()
    assert refusal(tmp_path / "runs") == (
        f"--resume: {trial}: not a whole trial, it lacks trial.json or its spans: remove this folder, and the trial "
        "runs again"
    )


@pytest.mark.parametrize("levels", [0, 1, 2, 3])
@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_is_not_followed_out_of_the_run(trial: Path, tmp_path: Path, levels: int, dangling: bool) -> None:
    outside, linked = tmp_path / "outside", [trial, *trial.parents][levels]
    shutil.rmtree(linked)
    linked.symlink_to(outside)
    if not dangling:
        outside.mkdir()
    assert refusal(tmp_path / "runs") == (
        f"--resume: {linked}: a link inside a run's folder: put what it leads to in its place"
    )
    assert dangling != outside.exists()
    assert not list(outside.glob("*"))


@pytest.mark.parametrize("levels", [0, 1, 2, 3])
def test_a_file_in_the_place_of_a_folder_is_refused(trial: Path, tmp_path: Path, levels: int) -> None:
    folder = [trial, *trial.parents][levels]
    shutil.rmtree(folder)
    folder.touch()
    assert refusal(tmp_path / "runs") == (f"--resume: {folder}: a file where a folder of trials belongs: remove it")


def test_a_network_that_another_substrate_carried_is_not_continued(trial: Path) -> None:
    store = RunStore.open(trial.parents[3])
    check_same_substrate(store, "guest")
    store.update_manifest({"substrate": {"name": "relay"}})
    check_same_substrate(store, "relay")
    with pytest.raises(InputError, match=r"carried by the substrate relay, and .* guest: give --substrate relay, or "):
        check_same_substrate(store, "guest")
