import json
from pathlib import Path

import pytest

from wanbed.ground.errors import InputError
from wanbed.results.records.run_store import MANIFEST, TRIAL_FACTS, RunStore
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.runs.run_folder import begin_run, exclusively
from wanbed.runner.runs.stored_runs import remove_run, run_at, stored_run, stored_runs

EXPERIMENT = parse_experiment(
    {
        "name": "small",
        "engine": "simulate",
        "topology": {
            "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
            "wan": {"latency": "10ms"},
        },
        "variants": [{"name": "a", "schedule": "gpipe"}, {"name": "b", "schedule": "1f1b"}],
        "sweep": {"topology.wan.latency": ["10ms", "20ms"]},
    },
    "small.yaml",
    Path(),
)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """A run of four trials: one has finished, one is half written, and of one only the folder is left."""
    store = begin_run(EXPERIMENT, tmp_path / "runs", {"dilation": 1.0})
    store.trial_path(0, "a", 0).mkdir(parents=True)
    (store.trial_path(0, "a", 0) / TRIAL_FACTS).write_text("{}")
    store.trial_path(1, "a", 0).mkdir(parents=True)
    (store.trial_path(0, "b", 0).parent / "repeat-0.partial").mkdir(parents=True)
    return store


def test_an_unfinished_run_is_described(store: RunStore) -> None:
    run = stored_run(store.path)
    assert (run.experiment, run.engine, run.state, run.damage) == ("small", "simulate", "unfinished", None)
    assert (run.finished_trials, run.planned_trials, run.iteration_times_s) == (1, 4, None)
    assert run.size_bytes == (store.path / MANIFEST).stat().st_size + len("{}")


def test_a_finished_run_is_complete_as_long_as_it_has_all_its_trials(store: RunStore) -> None:
    store.update_manifest({"complete": True})
    assert stored_run(store.path).state == "unfinished"
    for trial in EXPERIMENT.trials():
        store.trial_path(*trial).mkdir(parents=True, exist_ok=True)
        (store.trial_path(*trial) / TRIAL_FACTS).write_text("{}")
    assert stored_run(store.path).state == "complete"


def test_a_run_that_is_written_is_running(store: RunStore) -> None:
    with exclusively(store.path):
        assert stored_run(store.path).state == "running"
    assert stored_run(store.path).state == "unfinished"


def test_the_newest_run_is_first_and_a_damaged_one_last(store: RunStore) -> None:
    root = store.path.parent
    older = begin_run(EXPERIMENT, root, {"dilation": 1.0, "created": "2020-01-01T00:00:00+00:00"})
    damaged = begin_run(EXPERIMENT, root, {"dilation": 1.0})
    (damaged.path / MANIFEST).write_text('{"complete": ')
    (root / "notes").mkdir()
    (root / "link").symlink_to(store.path)
    found = stored_runs(root)
    assert [run.path for run in found] == [store.path, older.path, damaged.path]
    assert (found[2].state, found[2].damage) == ("damaged", f"{MANIFEST}: not JSON, the file is damaged")


@pytest.mark.parametrize("text", ["[]", "{}", '{"created": 7}', "\x00", '{"created": "2020"' + "[" * 10_000])
def test_no_manifest_stops_the_list(store: RunStore, text: str) -> None:
    (store.path.parent / "damaged").mkdir()
    (store.path.parent / "damaged" / MANIFEST).write_text(text)
    assert [run.state for run in stored_runs(store.path.parent)] == ["unfinished", "damaged"]


@pytest.mark.parametrize("created", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "yesterday"])
def test_a_run_of_no_possible_time_is_damaged(store: RunStore, created: str) -> None:
    store.update_manifest({"created": created})
    (run,) = stored_runs(store.path.parent)
    assert run.state == "damaged"
    assert run.damage is not None
    assert run.damage.startswith(f"{MANIFEST}: created: ")


def test_a_damaged_summary_leaves_the_iteration_time_out(store: RunStore) -> None:
    (store.path / "summary.parquet").write_bytes(b"PAR1 nothing")
    assert stored_run(store.path).iteration_times_s is None


def test_a_folder_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    assert stored_runs(tmp_path / "runs") == []


def test_a_run_is_found_by_name_and_by_path(store: RunStore) -> None:
    assert run_at(store.path.name, store.path.parent) == store.path
    assert run_at(str(store.path), Path("elsewhere")) == store.path


def test_what_is_no_run_is_refused(store: RunStore, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "link").symlink_to(store.path)
    for name, text in (
        ("notes", "not a run's folder, it has no manifest.json"),
        ("link", "a link, not a run's folder"),
        ("nothing", "no such run"),
    ):
        with pytest.raises(InputError, match=text):
            run_at(str(tmp_path / name), tmp_path)


def test_a_run_is_removed_and_what_its_links_lead_to_is_not(store: RunStore, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("mine")
    (store.path / "link").symlink_to(tmp_path / "kept")
    remove_run(store.path)
    assert not store.path.exists()
    assert (tmp_path / "kept" / "file").read_text() == "mine"


def test_a_run_that_is_written_is_not_removed(store: RunStore) -> None:
    with exclusively(store.path), pytest.raises(InputError, match="a process is writing this run"):
        remove_run(store.path)
    assert (store.path / MANIFEST).is_file()


@pytest.mark.parametrize("document", ["{", json.dumps({"name": "manifest of a web page"}), "[]"])
def test_a_folder_with_another_manifest_is_not_removed(tmp_path: Path, document: str) -> None:
    (tmp_path / MANIFEST).write_text(document)
    with pytest.raises(InputError, match="remove the folder yourself"):
        remove_run(tmp_path)
    assert (tmp_path / MANIFEST).is_file()
