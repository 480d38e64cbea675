"""A run's folder that somebody has changed is refused before it goes on."""

import json
import multiprocessing
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.present import present
from tests.support.refused import refused
from wanbed.ground.errors import InputError
from wanbed.results.reading.run_documents import read_manifest, read_trials
from wanbed.results.records.run_store import MANIFEST, TRIAL_FACTS, RunStore
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.runs import run_folder
from wanbed.runner.runs.run_folder import begin_run, check_same_substrate, exclusively, latest_run
from wanbed.runner.simulated_runs.process_pool import ProcessPool
from wanbed.runner.simulated_runs.simulated_run import simulated_run


def experiment(**changes: Any) -> Experiment:
    return parse_experiment(
        {
            "name": "small",
            "topology": {
                "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
                "wan": {"latency": "10ms"},
            },
            **changes,
        },
        "small.yaml",
        Path(),
    )


SMALL = experiment()


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run begins a minute after the one before."""
    moments: Iterator[datetime] = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=n) for n in range(100))
    gather = run_folder.gather_manifest
    monkeypatch.setattr(run_folder, "gather_manifest", lambda each: gather(each, created=next(moments)))


def begun(root: Path, of: Experiment = SMALL, *, complete: bool = False) -> RunStore:
    store = begin_run(of, root, {"dilation": 1.0})
    if complete:
        store.update_manifest({"complete": True})
    return store


def test_a_run_begins_in_a_folder_of_its_own_with_everything_known_in_its_manifest(tmp_path: Path) -> None:
    store = begin_run(SMALL, tmp_path / "runs", {"dilation": 2.5, "capacity_bps": 10**9})
    manifest = json.loads((store.path / MANIFEST).read_text())
    assert store.path.parent == tmp_path / "runs"
    assert store.path.name.startswith("small-")
    assert (manifest["dilation"], manifest["capacity_bps"], manifest["complete"]) == (2.5, 10**9, False)
    assert manifest["config_hash"] == SMALL.config_hash
    assert parse_experiment(manifest["experiment"], "manifest", Path()).config_hash == SMALL.config_hash
    assert begun(tmp_path / "runs").path != store.path


def test_the_unfinished_run_of_the_same_configuration_is_resumed(tmp_path: Path) -> None:
    ours = begun(tmp_path)
    begun(tmp_path, complete=True)
    begun(tmp_path, experiment(seed=1))
    assert resumed_path(tmp_path) == ours.path


def test_the_latest_of_several_unfinished_runs_is_resumed(tmp_path: Path) -> None:
    begun(tmp_path)
    latest = begun(tmp_path)
    begun(tmp_path, complete=True)
    assert resumed_path(tmp_path) == latest.path


def test_where_all_are_finished_it_is_the_latest(tmp_path: Path) -> None:
    begun(tmp_path, complete=True)
    latest = begun(tmp_path, complete=True)
    resumed = present(latest_run(SMALL, tmp_path))
    assert resumed.path == latest.path
    assert resumed.manifest["complete"] is True


def test_folders_that_are_no_runs_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "a file").touch()
    (tmp_path / "cut off").mkdir()
    (tmp_path / "cut off" / MANIFEST).write_text("{")
    ours = begun(tmp_path)
    assert resumed_path(tmp_path) == ours.path


@pytest.mark.parametrize("field", ["created", "complete"])
@pytest.mark.parametrize("value", [None, []])
def test_a_run_whose_manifest_is_damaged_is_skipped(tmp_path: Path, field: str, value: object) -> None:
    ours, damaged = begun(tmp_path), begun(tmp_path)
    manifest = {name: found for name, found in damaged.manifest.items() if name != field}
    (damaged.path / MANIFEST).write_text(json.dumps(manifest if value is None else {**manifest, field: value}))
    assert resumed_path(tmp_path) == ours.path


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_a_run_of_another_configuration_is_not_resumed(tmp_path: Path, folder: str) -> None:
    begun(tmp_path, experiment(seed=1))
    root = tmp_path / folder
    assert latest_run(SMALL, root) is None
    assert root.exists() == (folder == ".")


def resumed_path(root: Path) -> Path:
    return present(latest_run(SMALL, root)).path


@pytest.mark.parametrize("blocked", ["file", "file/below"])
def test_a_root_that_cannot_be_made_is_refused_in_one_line(tmp_path: Path, blocked: str) -> None:
    (tmp_path / "file").touch()
    text = refused(lambda: begun(tmp_path / blocked))
    assert text.startswith(f"--runs: {tmp_path / blocked}: cannot be written to (")
    assert text.isprintable()


def held_by_another(path: Path) -> bool:
    """Whether another process is refused."""

    def attempt() -> None:
        try:
            with exclusively(path):
                os._exit(0)
        except InputError:
            os._exit(1)

    child = multiprocessing.get_context("fork").Process(target=attempt)
    child.start()
    child.join()
    return bool(child.exitcode)


def test_a_run_is_continued_by_one_process_at_a_time(tmp_path: Path) -> None:
    with exclusively(tmp_path):
        assert held_by_another(tmp_path)
    assert not held_by_another(tmp_path)


def test_the_refusal_says_which_folder_and_what_to_do(tmp_path: Path) -> None:
    text = rf"^--resume: {tmp_path} is being written by another process, let it end$"
    with exclusively(tmp_path), pytest.raises(InputError, match=text), exclusively(tmp_path):
        pytest.fail("both hold it")


def test_a_killed_writer_releases_the_lock(tmp_path: Path) -> None:
    def hold_and_die() -> None:
        exclusively(tmp_path).__enter__()
        os._exit(0)

    child = multiprocessing.get_context("fork").Process(target=hold_and_die)
    child.start()
    child.join()
    assert not held_by_another(tmp_path)


def test_an_error_releases_the_lock(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), exclusively(tmp_path):
        raise ZeroDivisionError
    assert not held_by_another(tmp_path)


def test_a_run_of_an_earlier_schema_version_does_not_go_on(tmp_path: Path) -> None:
    store = begun(tmp_path)
    manifest = json.loads((store.path / MANIFEST).read_text())
    del manifest["schema_version"]
    (store.path / MANIFEST).write_text(json.dumps(manifest))
    assert latest_run(SMALL, tmp_path) is None


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
    line = refused(lambda: go_on(root))
    assert present(latest_run(EXPERIMENT, root)).manifest["complete"] is False
    assert not list(root.glob("**/*.partial"))
    return line


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
