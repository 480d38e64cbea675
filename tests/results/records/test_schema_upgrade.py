"""A run of the schema version before reads as if it had been written today, as far as it tells."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wanbed import results
from wanbed.results.reading.run import load_run
from wanbed.results.reading.run_documents import read_manifest, read_trials
from wanbed.results.records.run_store import RunError, RunStore, TrialRecord
from wanbed.results.records.schema import LINK_SAMPLES, SPANS
from wanbed.results.records.schema_upgrade import upgraded, upgraded_document
from wanbed.results.records.trial_tables import PREFILL_REQUESTS_FILE, SPANS_FILE, TCP_SAMPLES_FILE

NEW_IN_VERSION_2 = ("tensor", "request")


def earlier_name(version: int, column: str) -> str:
    if version >= 3:
        return column
    return {"sweep_point": "cell"}.get(column, column.replace("configured_", "asked_"))


def as_version(version: int, file: Path) -> None:
    table = pq.read_table(file)
    if version == 1:
        table = table.drop_columns([name for name in NEW_IN_VERSION_2 if name in table.schema.names])
    table = table.rename_columns([earlier_name(version, name) for name in table.schema.names])
    pq.write_table(table.replace_schema_metadata({"wanbed.schema_version": str(version)}), file)


def with_earlier_keys(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('"sweep_points"', '"cells"').replace('"sweep_point"', '"cell"'), encoding="utf-8")


def as_run_of_version(version: int, run: Path) -> None:
    for file in [*run.glob("trials/*/*/*/*.parquet"), *run.glob("calibration/*")]:
        as_version(version, file)
    if version >= 3:
        return
    for document in [run / "manifest.json", *run.glob("trials/*/*/*/trial.json")]:
        with_earlier_keys(document)
    for point in [*run.glob("trials/point-*"), *run.glob("calibration/point-*")]:
        point.rename(point.with_name(point.name.replace("point-", "cell-")))


def test_the_bound_of_a_trial_up_to_version_5_is_that_of_its_makespan() -> None:
    bound = {"time_ns": 800, "part": "gpu of stage 2"}
    assert upgraded_document({"variant": "x", "bound": bound}) == {"variant": "x", "makespan_bound": bound}


@pytest.mark.parametrize("version", [1, 2, 3, 5])
def test_a_run_of_an_earlier_version_loads_with_the_same_spans_and_summary(
    build_run: Callable[..., Path], version: int
) -> None:
    path = build_run()
    now = results.load(path)
    if version == 1:
        for trial in path.glob("trials/*/*/*"):
            (trial / TCP_SAMPLES_FILE).unlink()
            (trial / PREFILL_REQUESTS_FILE).unlink()
    as_run_of_version(version, path)
    before = results.load(path)
    assert before.spans.equals(now.spans)
    assert before.summary.equals(now.summary)
    assert before.calibration.equals(now.calibration)
    assert before.manifest == now.manifest
    assert before.tcp_samples.empty
    coded = load_run(path, coded=True)
    assert coded.spans.astype(now.spans.dtypes).equals(now.spans)
    assert coded.summary.equals(now.summary)


@pytest.mark.parametrize("version", [2, 3])
def test_a_run_of_an_earlier_version_goes_on_where_it_was_cut_off(build_run: Callable[..., Path], version: int) -> None:
    path = build_run()
    as_run_of_version(version, path)
    store = RunStore.open(path)
    trials = [trial.id for trial in read_trials(path, read_manifest(path))]
    assert len(trials) > 1
    assert all(store.has_trial(*trial) for trial in trials)
    assert store.has_calibration(0)
    missing = store.trial_path(*trials[0])
    shutil.rmtree(missing)
    store.write_trial(TrialRecord(trials[0], []))
    assert missing.is_dir()
    assert [trial.id for trial in read_trials(path, read_manifest(path))] == trials


def test_a_version_1_file_with_other_columns_is_refused(build_run: Callable[..., Path]) -> None:
    path = build_run()
    file = next(path.glob(f"trials/*/*/*/{SPANS_FILE}"))
    table = pq.read_table(file).drop_columns([*NEW_IN_VERSION_2, "host"])
    pq.write_table(table.replace_schema_metadata({"wanbed.schema_version": "1"}), file)
    with pytest.raises(RunError, match="columns are not those"):
        results.load(path)


def row(stage: int, host: str, kind: str, peer: str) -> dict[str, object]:
    own = {"sweep_point": 0, "variant": "v", "repeat": 0, "rank": stage, "host": host, "datacenter": "dc", "gpu": 0}
    times = {"iteration": 0, "microbatch": 0, "start_ns": 0, "end_ns": 1, "size_bytes": 1}
    return {**own, "pipeline": 0, "stage": stage, **times, "kind": kind, "peer": peer}


@pytest.mark.parametrize(
    ("hosts", "kind", "peer", "tensor"),
    [
        (("a", "b", "c"), "receive", "a", "activation"),
        (("a", "b", "c"), "receive", "c", "gradient"),
        (("a", "b", "c"), "send", "c", "activation"),
        (("a", "b", "c"), "send", "a", "gradient"),
        (("a", "b", "a"), "send", "a", ""),
        (("a", "b", "c"), "forward", "", ""),
    ],
)
def test_the_host_at_the_other_end_tells_the_tensor_unless_both_peers_share_it(
    hosts: tuple[str, str, str], kind: str, peer: str, tensor: str
) -> None:
    rows = [row(0, hosts[0], "forward", ""), row(1, hosts[1], kind, peer), row(2, hosts[2], "forward", "")]
    old = pa.schema([field for field in SPANS if field.name not in NEW_IN_VERSION_2])
    table = upgraded(pa.Table.from_pylist(rows, schema=old), SPANS)
    assert table.schema.equals(SPANS)
    assert table.column("tensor").to_pylist() == ["", tensor, ""]
    assert table.column("request").to_pylist() == [-1, -1, -1]


def test_a_table_that_did_not_change_stays_as_it_is() -> None:
    table = LINK_SAMPLES.empty_table()
    assert upgraded(table, LINK_SAMPLES).equals(table)


def test_a_window_up_to_version_6_is_called_the_buffer_that_it_was() -> None:
    transport = {"connections": 1, "window": "6MiB"}
    variants = [{"name": "x", "transport": transport}]
    manifest = {"variants": variants, "experiment": {"variants": variants, "background": [{"window": "1MiB"}]}}
    buffer = {"connections": 1, "receive_buffer": "6MiB"}
    renamed = [{"name": "x", "transport": buffer}]
    assert upgraded_document(manifest) == {
        "variants": renamed,
        "experiment": {"variants": renamed, "background": [{"receive_buffer": "1MiB"}]},
    }
    now = {**manifest, "schema_version": 7}
    assert upgraded_document(now) == now
