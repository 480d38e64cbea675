import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.records.run_store import LostTrialError, RunError, RunStore, TrialRecord, slug
from wanbed.results.records.schema import CalibrationRow, LinkSample
from wanbed.results.records.span_log import RankPlace, Span, SpanLogContents
from wanbed.results.records.trial_id import TrialId
from wanbed.results.records.trial_tables import LINK_TABLE

HEADER = RankPlace(rank=0, host="east-0", datacenter="east", gpu=0, pipeline=0, stage=0)
LOG = SpanLogContents(HEADER, (Span("forward", 0, 0, 5, 9),), complete=True)
SAMPLE = LinkSample(7, "link", "east", "west", 1500, 1, 0, 0)
MEASURED = CalibrationRow(
    "east", "west", "wan", 20.0, 20.1, None, None, {"configured_loss": 0.01, "measured_loss": None}, True
)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore.create(tmp_path, "demo", {"seed": 3}, "c0ffee00" * 8)


def trial(variant: str = "gpipe", repeat: int = 0) -> TrialRecord:
    return TrialRecord(TrialId(0, variant, repeat), [LOG], {LINK_TABLE: [SAMPLE]}, {"window_bytes": 2**20})


def test_a_new_run_s_folder_names_the_experiment_the_time_and_the_configuration(store: RunStore) -> None:
    name, time, config_hash = store.path.name.split("-")
    assert (name, config_hash) == ("demo", "c0ffee00")
    assert time.endswith("Z")


def test_two_runs_of_one_second_get_two_folders(tmp_path: Path) -> None:
    made = {RunStore.create(tmp_path, "demo", {}, "c0ffee").path for _ in range(3)}
    assert len(made) == 3


def test_a_run_is_incomplete_until_it_finishes(store: RunStore) -> None:
    assert RunStore.open(store.path).manifest["complete"] is False
    store.update_manifest({"substrate": {"name": "kernel"}})
    store.finish()
    manifest = RunStore.open(store.path).manifest
    assert manifest["complete"] is True
    assert manifest["seed"] == 3
    assert manifest["substrate"] == {"name": "kernel"}


def test_a_run_that_lacks_a_trial_does_not_finish(tmp_path: Path) -> None:
    planned = {"sweep_points": [{"index": 0, "sweep_point": {}}], "variants": [{"name": "gpipe"}], "repeats": 2}
    store = RunStore.create(tmp_path, "demo", planned, "c0ffee")
    store.write_trial(trial())
    with pytest.raises(LostTrialError, match=r"point-000/gpipe/repeat-1: removed while the run went on$"):
        store.finish()
    assert RunStore.open(store.path).manifest["complete"] is False
    store.write_trial(trial(repeat=1))
    store.finish()
    assert RunStore.open(store.path).manifest["complete"] is True


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run's folder"):
        RunStore.open(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"'])
def test_a_damaged_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(RunError, match=r"manifest\.json: .* damaged"):
        RunStore.open(tmp_path)


def test_a_trial_is_there_once_it_is_written(store: RunStore) -> None:
    assert not store.has_trial(0, "gpipe", 0)
    path = store.write_trial(trial())
    assert store.has_trial(0, "gpipe", 0)
    assert RunStore.open(store.path).has_trial(0, "gpipe", 0)
    assert not store.has_trial(0, "gpipe", 1)
    assert not store.has_trial(1, "gpipe", 0)
    assert path == store.path / "trials" / "point-000" / "gpipe" / "repeat-0"
    assert json.loads((path / "trial.json").read_text()) == {
        "window_bytes": 2**20, "sweep_point": 0, "variant": "gpipe", "repeat": 0,
    }  # fmt: skip


def test_what_a_killed_write_left_does_not_count_and_is_replaced(store: RunStore) -> None:
    partial = store.trial_path(0, "gpipe", 0).with_name("repeat-0.partial")
    partial.mkdir(parents=True)
    (partial / "spans.parquet").write_text("torn")
    assert not store.has_trial(0, "gpipe", 0)
    store.write_trial(trial())
    assert store.has_trial(0, "gpipe", 0)
    assert not partial.exists()


def test_a_finished_trial_is_never_overwritten(store: RunStore) -> None:
    store.write_trial(trial())
    with pytest.raises(FileExistsError, match="there already"):
        store.write_trial(trial())


@pytest.mark.parametrize("name", ["trial.json", "spans.parquet"])
def test_a_trial_without_its_facts_or_spans_has_not_finished(store: RunStore, name: str) -> None:
    (store.write_trial(trial()) / name).unlink()
    assert not store.has_trial(0, "gpipe", 0)


def test_nothing_is_written_for_a_trial_whose_place_is_a_dangling_link(store: RunStore, tmp_path: Path) -> None:
    path = store.trial_path(0, "gpipe", 0)
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError, match="there already"):
        store.write_trial(trial())
    assert list(path.parent.iterdir()) == [path]


def test_a_trial_with_a_cut_off_log_has_not_finished(store: RunStore) -> None:
    cut_off = SpanLogContents(HEADER, LOG.spans, complete=False)
    with pytest.raises(ValueError, match="rank 0 on east-0 is cut off"):
        store.write_trial(TrialRecord(TrialId(0, "gpipe", 0), [LOG, cut_off]))
    assert not store.has_trial(0, "gpipe", 0)


def test_calibration_can_be_written_again(store: RunStore) -> None:
    assert not store.has_calibration(0)
    store.write_calibration(0, [MEASURED])
    store.write_calibration(0, [MEASURED, MEASURED])
    assert store.has_calibration(0)
    assert [path.name for path in (store.path / "calibration").iterdir()] == ["point-000.parquet"]


@pytest.mark.parametrize(
    "name", ["../../etc", "a/b", "..", ".", "", "x" * 300, "naïve ☃", "a\nb", "-rf", "a b", "x\0y"]
)
def test_hostile_names_stay_inside_the_run(store: RunStore, name: str) -> None:
    path = store.write_trial(trial(name))
    assert path.parent.parent == store.path / "trials" / "point-000"
    assert len(path.parent.name) < 80
    assert json.loads((path / "trial.json").read_text())["variant"] == name


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "GPipe_v2.1", "a-b"])
def test_ordinary_names_are_their_own_folder(name: str) -> None:
    assert slug(name) == name


@given(st.lists(st.text(max_size=12), unique=True, min_size=2))
def test_no_two_names_share_a_folder(names: list[str]) -> None:
    assert len({slug(name) for name in names}) == len(names)


@given(st.text())
def test_a_name_made_to_look_like_anothers_folder_gets_its_own(name: str) -> None:
    assert slug(slug(name)) == slug(name) if slug(name) == name else slug(slug(name)) != slug(name)


def test_what_a_program_printed_is_kept_with_its_trial(store: RunStore, tmp_path: Path) -> None:
    printed = tmp_path / "rank-0.words"
    printed.write_text("loss 3.1")
    record = TrialRecord(TrialId(0, "ddp", 0), [LOG], outputs={"rank-0.stdout": printed})
    assert (store.write_trial(record) / "output" / "rank-0.stdout").read_text() == "loss 3.1"
