import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from wanbed import results
from wanbed.results.reading.run import Run, load_run, run_labels
from wanbed.results.reading.summary import FIELDS, summary_rows
from wanbed.results.reading.trial_rows import DIVIDED
from wanbed.results.records.run_store import RunError
from wanbed.results.records.schema import CALIBRATION, trial_schema
from wanbed.results.records.trial_table import TrialTable
from wanbed.results.records.trial_tables import TRIAL_TABLES
from wanbed.results.report.report import write_report

BuildRun = Callable[..., Path]


def test_a_run_reads_back_with_all_its_tables(build_run: BuildRun) -> None:
    run = results.load(build_run(repeats=2))
    assert run.complete
    frames = {**vars(run), **run.further}
    assert {table.frame: list(frames[table.frame].columns) for table in TRIAL_TABLES.values()} == {
        table.frame: table.columns.names for table in TRIAL_TABLES.values()
    }
    assert list(run.calibration.columns) == CALIBRATION.names
    assert [(trial.point, trial.variant, trial.repeat) for trial in run.trials] == [
        (point, variant, repeat)
        for point in (0, 1)
        for variant in ("one connection", "many connections")
        for repeat in (0, 1)
    ]


def test_a_run_whose_texts_are_codes_is_the_same_run(build_run: BuildRun, tmp_path: Path) -> None:
    path = build_run(variants=("b", "a"))
    plain, coded = load_run(path), load_run(path, coded=True)
    texts = [name for name, kind in coded.spans.dtypes.items() if isinstance(kind, pd.CategoricalDtype)]
    assert {"variant", "host", "datacenter", "kind", "peer", "tensor"} == set(texts)
    assert all(list(coded.spans[name].cat.categories) == sorted(set(plain.spans[name])) for name in texts)
    pd.testing.assert_frame_equal(coded.spans.astype(dict.fromkeys(texts, "str")), plain.spans)
    pd.testing.assert_frame_equal(coded.summary, plain.summary)
    for name, run in (("plain", plain), ("coded", coded)):
        write_report([run], tmp_path / name)
    assert (tmp_path / "plain").read_text() == (tmp_path / "coded").read_text()


def test_the_summary_has_one_row_a_trial_with_the_documented_fields(build_run: BuildRun) -> None:
    rows = summary_rows(results.load(build_run()).summary)
    assert [set(row) for row in rows] == [{*FIELDS, "swept"}] * 4
    assert [row["sweep_point"] for row in rows] == [0, 0, 1, 1]
    assert rows[0]["swept"] == {"topology.wan.latency": "10ms"}
    assert all(row["calibrated"] is True for row in rows)
    assert all(len(row["iteration_times_s"]) == 2 for row in rows)
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows


def test_the_summary_is_what_the_traces_say(build_run: BuildRun) -> None:
    run = results.load(build_run())
    for trial, row in zip(run.trials, summary_rows(run.summary), strict=True):
        spans = run.spans[(run.spans["sweep_point"] == trial.point) & (run.spans["variant"] == trial.variant)]
        crossing = spans[(spans["kind"] == "send") & (spans["datacenter"] != spans["peer"].str.split("-").str[0])]
        assert row["wan_bytes"] == pytest.approx(crossing["size_bytes"].sum() * 1.05, rel=1e-6)
        assert row["gpu_utilization"] == row["gpu_utilization_with_prefill"]
        ends_ns = spans[spans["kind"] != "prefill"].groupby("iteration")["end_ns"].max()
        assert row["iteration_time_s"] == pytest.approx((ends_ns.iloc[-1] - ends_ns.iloc[0]) / (len(ends_ns) - 1) / 1e9)
        computed = spans[spans["kind"].isin(["forward", "recompute", "backward"])]
        busy_ns = (computed["end_ns"] - computed["start_ns"])[computed["iteration"] >= 1].sum()
        own_ns = computed.groupby("rank")["end_ns"].max()
        own_ns -= computed[computed["iteration"] == 0].groupby("rank")["end_ns"].max()
        watched_ns = own_ns.clip(lower=ends_ns.iloc[-1] - ends_ns.iloc[0]).sum()
        assert row["gpu_utilization"] == pytest.approx(busy_ns / watched_ns)
        assert row["tokens_per_s"] == pytest.approx(8 * 4096 / row["iteration_time_s"])


def test_many_connections_pay_off_where_the_window_is_the_limit(build_run: BuildRun) -> None:
    near_one, near_many, far_one, far_many = results.load(build_run()).summary["iteration_time_s"]
    assert near_one == pytest.approx(near_many)
    assert far_one > 1.2 * far_many


def test_what_could_not_be_measured_is_missing_and_none_in_json(build_run: BuildRun) -> None:
    run = results.load(build_run(manifest={"warmup_iterations": 3, "tokens_per_iteration": None}))
    assert run.summary["iteration_time_s"].isna().all()
    row = summary_rows(run.summary)[0]
    assert row["iteration_time_s"] is None
    assert row["iteration_times_s"] == []
    assert row["gpu_utilization"] is None
    assert row["tokens_per_s"] is None
    assert row["wan_bytes"] > 0


def test_a_trial_s_own_facts_hold_in_place_of_the_manifest_s(build_run: BuildRun) -> None:
    path = build_run(latencies=("10ms",))
    file = next(path.glob("trials/point-000/many*/repeat-0/trial.json"))
    file.write_text(json.dumps({**json.loads(file.read_text()), "dilation": 4.0, "warmup_iterations": 2}))
    one, many = summary_rows(results.load(path).summary)
    assert (one["dilation"], many["dilation"]) == (1.0, 4.0)
    assert (len(one["iteration_times_s"]), len(many["iteration_times_s"])) == (2, 1)


def test_a_sweep_point_outside_tolerance_is_not_calibrated(build_run: BuildRun) -> None:
    path = build_run(within_tolerance=False)
    assert not results.load(path).summary["calibrated"].any()
    shutil.rmtree(path / "calibration")
    assert not results.load(path).summary["calibrated"].any()


@pytest.mark.parametrize("finished", [0, 1, 3])
def test_a_killed_run_loads_with_what_had_finished(build_run: BuildRun, finished: int) -> None:
    path = build_run(finished_trials=finished)
    (path / "trials/point-001/x/repeat-0.partial").mkdir(parents=True)
    (path / "trials/point-001/x/repeat-0.partial/trial.json").write_text('{"sweep point": 1}')
    run = results.load(path)
    assert not run.complete
    assert len(run.summary) == len(run.trials) == finished
    assert run.spans["variant"].nunique() == min(finished, 2)
    assert run.variants == ("one connection", "many connections")


def test_a_killed_run_loads_whatever_write_it_was_killed_in(build_run: BuildRun, tmp_path: Path) -> None:
    whole = build_run(latencies=("10ms",))
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    assert len(files) == 12
    for name in files:
        torn = tmp_path / "torn"
        shutil.copytree(whole, torn)
        written = torn / name
        if written.parent.name.startswith("repeat-"):
            written.write_bytes(written.read_bytes()[:10])
            written.parent.rename(written.parent.with_name(f"{written.parent.name}.partial"))
        else:
            written.with_name(f"{written.name}.partial").write_bytes(written.read_bytes()[:10])
        assert len(results.load(torn).trials) == (1 if name.parts[0] == "trials" else 2)
        shutil.rmtree(torn)


def test_a_damaged_file_is_named(build_run: BuildRun) -> None:
    path = build_run(latencies=("10ms",))
    damaged = next(path.glob("trials/*/*/*/spans.parquet"))
    damaged.write_text("not parquet")
    with pytest.raises(RunError, match=r"spans\.parquet: not a Parquet file"):
        results.load(path)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run's folder"):
        results.load(tmp_path)


def test_a_rank_can_write_its_spans_without_the_libraries_that_read_them() -> None:
    check = (
        "import sys, wanbed.results.records.span_log; "
        "print(*{'pandas', 'pyarrow', 'numpy', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_load_stays_the_function_once_its_module_is_imported(build_run: BuildRun) -> None:
    run = results.load(build_run(latencies=("10ms",)))
    again = results.load(str(run.path))
    pd.testing.assert_frame_equal(run.summary, again.summary)


def run(name: str, folder: str = "", engine: str = "emulate") -> Run:
    nothing = pd.DataFrame()
    manifest = {"name": name, "engine": engine}
    path = Path("runs") / (folder or f"{name}-20260102T030405Z-c0ffeec0")
    return Run(path, manifest, (), nothing, nothing, nothing, nothing, nothing, nothing, nothing)


LATER, NEXT_DAY = "a-20260102T090405Z-c0ffeec0", "a-20260103T030405Z-c0ffeec0"


@pytest.mark.parametrize(
    ("runs", "labels"),
    [
        ([run("a")], ["a"]),
        ([run("a"), run("b")], ["a", "b"]),
        ([run("a"), run("a", LATER)], ["030405Z", "090405Z"]),
        ([run("a"), run("a", NEXT_DAY)], ["20260102T030405Z", "20260103T030405Z"]),
        ([run("a"), run("a", LATER), run("b")], ["a, 030405Z", "a, 090405Z", "b"]),
        ([run("a", "before"), run("a", "after")], ["before", "after"]),
        ([run("a"), run("a", engine="simulate")], ["a, emulated", "a, simulated"]),
        (
            [run("a"), run("a", LATER), run("a", engine="simulate")],
            ["a, emulated, 030405Z", "a, emulated, 090405Z", "a, simulated"],
        ),
        ([run("a"), run("a")], ["a, #1", "a, #2"]),
        ([run("a", "same"), run("a", "same"), run("a", LATER)], ["a, same, #1", "a, same, #2", "a, 090405Z"]),
    ],
)
def test_runs_have_the_shortest_unique_labels(runs: list[Run], labels: list[str]) -> None:
    assert run_labels(runs) == labels


def test_each_trial_has_its_rows_of_every_table(build_run: BuildRun, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build_run()
    counts = TrialTable("counts.parquet", "counts", trial_schema(("count", pa.int32(), "how many")), tuple)
    monkeypatch.setitem(TRIAL_TABLES, counts.file, counts)
    run = load_run(path)
    assert [*run.further] == ["counts"]
    for trial in run.trials:
        rows = run.rows[trial.id]
        assert {*DIVIDED, *rows.further} == {table.frame for table in TRIAL_TABLES.values()}
        assert [*rows.further["counts"]] == ["sweep_point", "variant", "repeat", "count"]
        assert {*rows.spans["variant"]} == {trial.variant}
