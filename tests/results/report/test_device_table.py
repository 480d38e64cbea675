import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.present import present
from tests.support.results.trace_rules import load_trace, names_of, problems
from wanbed import results
from wanbed.results.perfetto.trace_file import write_trace
from wanbed.results.reading.run import Run
from wanbed.results.reading.selection import Selection
from wanbed.results.records.run_store import TRIAL_FACTS, read_json
from wanbed.results.records.schema import GPU_SAMPLES, GpuSample
from wanbed.results.records.table_files import write_table
from wanbed.results.records.trial_tables import GPU_SAMPLES_FILE
from wanbed.results.report.device_table import device_rows, device_table
from wanbed.results.report.report import write_report
from wanbed.results.report.reported_runs import ReportedRun

BuildRun = Callable[..., Path]
GPU = "GPU-5fd4c7a1"
MS = 1_000_000


def described(rank: int, host: str, **more: Any) -> dict[str, Any]:
    """What a rank tells of its device."""
    device = {
        "device": GPU,
        "model": "NVIDIA H200",
        "to_host_bytes": 0,
        "to_host_ns": 0,
        "to_device_bytes": 0,
        "to_device_ns": 0,
        "clock_error_ns": 900,
        "check_iteration": None,
        "check_spans_ns": 0,
        "check_profiler_ns": 0,
    }
    return {"rank": rank, "host": host, "gpu": 0, **device, **more}


@pytest.fixture
def run(build_run: BuildRun) -> Run:
    """A run of one trial, whose GPUs are all one real GPU that NVML sampled."""
    path = build_run(latencies=("40ms",), variants=("shared",))
    trial = path / "trials/point-000/shared/repeat-0"
    hosts = results.load(path).spans[["rank", "host"]].drop_duplicates()
    copies = {"to_host_bytes": 10**9, "to_host_ns": 10**8, "check_iteration": 0}
    devices = [
        described(int(rank), str(host), **copies, check_spans_ns=1_000, check_profiler_ns=900)
        for rank, host in hosts.itertuples(index=False)
    ]
    (trial / TRIAL_FACTS).write_text(json.dumps({**read_json(trial / TRIAL_FACTS), "devices": devices}))
    shown = results.load(path)
    window = shown.rows[shown.trials[0].id].window
    assert window is not None
    samples = [
        (0, "shared", 0, *GpuSample(time_ns, GPU, utilization, 2**30, 412.5, clock_hz, None, 54, held))
        for time_ns, utilization, clock_hz, held in (
            (0, 0.0, 345_000_000, "idle"),
            (window.start_ns, 0.5, 1_980_000_000, ""),
            (window.end_ns - 1, 0.75, 1_620_000_000, "power cap, thermal limit"),
            (window.end_ns + MS, 1.0, 345_000_000, ""),
        )
    ]
    write_table(trial / GPU_SAMPLES_FILE, GPU_SAMPLES, samples)
    return results.load(path)


def test_a_device_row_has_staging_rates_and_cross_checks(run: Run) -> None:
    (row,) = device_rows(run)
    ranks = run.spans["rank"].nunique()
    assert (row.device, row.model, row.contention.seats) == (GPU, "NVIDIA H200", ranks)
    assert 0 < row.busy <= 1
    assert row.contention.contended_ns > 0
    assert row.nvml.nvml_utilization == pytest.approx(0.625)
    assert (row.nvml.clock_hz, row.nvml.throttled) == (1_800_000_000, ("power cap", "thermal limit"))
    assert (row.staged.to_host_bytes, row.staged.to_host_bps) == (ranks * 10**9, pytest.approx(80e9))
    assert (row.staged.to_device_bytes, row.staged.to_device_bps) == (0, None)
    assert row.checked_share == pytest.approx(0.9)


def test_a_record_has_every_figure_of_its_device_side_by_side(run: Run) -> None:
    (record,) = present(device_table(ReportedRun(run))).records
    assert list(record) == [
        *("where", "variant", "repeat", "device", "model", "contention", "busy"),
        *("nvml_utilization", "clock_hz", "throttled"),
        *("to_host_bytes", "to_host_bps", "to_device_bytes", "to_device_bps"),
        *("checked_share", "deterministic"),
    ]
    assert (record["clock_hz"], record["to_device_bytes"], record["checked_share"]) == (
        1_800_000_000,
        0,
        pytest.approx(0.9),
    )


def test_the_report_explains_the_figures_of_devices(run: Run, tmp_path: Path) -> None:
    write_report([run], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for text in (
        "Devices that really computed",
        GPU,
        "62.5",
        "1,800\u00a0MHz, held down by its power cap and thermal limit",
        "cross-check that does not show bubbles",
        "profiler over spans",
    ):
        assert text in page


@pytest.mark.parametrize("deterministic", [True, False, None])
def test_the_report_says_that_kernels_were_deterministic(run: Run, deterministic: bool | None) -> None:
    facts = run.trials[0].facts
    said = {} if deterministic is None else {"deterministic": deterministic}
    devices = [{**each, **said} for each in facts["devices"]]
    trial = replace(run.trials[0], facts={**facts, "devices": devices})
    table = device_table(ReportedRun(replace(run, trials=(trial,))))
    assert table is not None
    assert ("deterministic kernels only" in table.reading[0]) is (deterministic is True)


def test_a_cross_check_that_was_not_configured_has_no_column(run: Run) -> None:
    plain = [described(int(rank), str(host)) for rank, host in run.spans[["rank", "host"]].drop_duplicates().to_numpy()]
    (trial,) = run.trials
    trial.facts["devices"][:] = plain
    bare = Run(**{**vars(run), "gpu_samples": run.gpu_samples.iloc[:0]})
    table = device_table(ReportedRun(bare))
    assert table is not None
    assert table.columns == [
        "variant",
        "device",
        "ranks on it",
        "busy",
        "contended",
        "slowdown",
    ]
    assert "NVML" not in table.reading[0]


def test_mps_is_noted_where_it_ran(run: Run) -> None:
    before, (trial,) = device_table(ReportedRun(run)), run.trials
    trial.facts["mps"] = {"pipe_directory": "/run/mps", "active_thread_percentage": None}
    after = device_table(ReportedRun(run))
    assert before is not None
    assert after is not None
    assert "MPS" not in before.reading[0]
    assert "CUDA's MPS ran: kernels of ranks that share a GPU ran on it at the same time" in after.reading[0]


def test_a_run_that_computed_nothing_has_no_such_table(build_run: BuildRun, tmp_path: Path) -> None:
    path = build_run(latencies=("40ms",), variants=("one",))
    assert device_table(ReportedRun(results.load(path))) is None
    write_report([path], tmp_path / "report.html")
    assert "Devices that really computed" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_trace_shows_nvml_samples(run: Run) -> None:
    write_trace(run.path, run.path / "trace.json", Selection())
    trace = load_trace(run.path / "trace.json")
    assert problems(trace) == []
    names = names_of(trace, "process_name")
    of_gpus = [event for event in trace["traceEvents"] if event["ph"] == "C" and "NVML" in names[event["pid"]]]
    assert {event["name"] for event in of_gpus} >= {f"{GPU} NVML utilization", f"{GPU} power"}
    assert any("contended_us" in event.get("args", {}) for event in trace["traceEvents"])
