"""Every reader of a trial's tables refuses what cannot be, by file, column and row."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.results.records.test_schema_upgrade import as_version
from wanbed import results
from wanbed.results.perfetto.trace_file import write_trace
from wanbed.results.reading.run import load_run
from wanbed.results.reading.selection import Selection
from wanbed.results.records.run_store import RunError
from wanbed.results.records.schema import GPU_SAMPLES, GpuSample
from wanbed.results.records.table_files import write_table
from wanbed.results.records.trial_tables import (
    GPU_SAMPLES_FILE,
    LINK_SAMPLES_FILE,
    PREFILL_REQUESTS_FILE,
    SPANS_FILE,
    TCP_SAMPLES_FILE,
    TRIAL_TABLES,
)

BuildRun = Callable[..., Path]


def put(file: Path, column: str, row: int, value: Any) -> None:
    table = pq.read_table(file)
    values = table.column(column).to_pylist()
    values[row] = value
    field = table.schema.field(column)
    position = table.schema.get_field_index(column)
    pq.write_table(table.set_column(position, field, pa.array(values, field.type)), file)


def refusal(path: Path) -> str:
    """What all readers say; they say the same."""
    with pytest.raises(RunError) as loading:
        results.load(path)
    with pytest.raises(RunError) as loading_codes:
        load_run(path, coded=True)
    assert str(loading.value) == str(loading_codes.value)
    with pytest.raises(RunError) as tracing:
        write_trace(path, path / "trace.json", Selection())
    assert str(loading.value) == str(tracing.value)
    assert "\n" not in str(loading.value)
    return str(loading.value)


@pytest.fixture
def trial(build_run: BuildRun) -> Path:
    """The folder of a run's trial that has rows in all tables but that of connections."""
    path = build_run(
        variants=("alone", "filled"), prefill={"filled": 20.0}, latencies=("10ms",), datacenters=("east", "west")
    )
    return path / "trials/point-000/filled/repeat-0"


@pytest.mark.parametrize(
    ("name", "column", "value", "text"),
    [
        (SPANS_FILE, "start_ns", None, "nothing where a value has to be"),
        (SPANS_FILE, "start_ns", -1, "-1 is negative"),
        (SPANS_FILE, "end_ns", -1, "-1 is before start_ns"),
        (SPANS_FILE, "end_ns", 2**63 - 1, "9223372036854775807 is not below 4611686018427387904"),
        (SPANS_FILE, "iteration", 2**31 - 1, "2147483647 is not below 10000"),
        (SPANS_FILE, "iteration", -1, "-1 is negative"),
        (LINK_SAMPLES_FILE, "time_ns", 2**63 - 1, "9223372036854775807 is not below 4611686018427387904"),
        (SPANS_FILE, "host", None, "nothing where a value has to be"),
        (SPANS_FILE, "size_bytes", -7, "-7 is negative"),
        (SPANS_FILE, "kind", "sleep", "'sleep' is none of forward, "),
        (SPANS_FILE, "sweep_point", 1, "1 is not the trial's, 0"),
        (SPANS_FILE, "variant", "other", "'other' is not the trial's, 'filled'"),
        (SPANS_FILE, "repeat", 3, "3 is not the trial's, 0"),
        (LINK_SAMPLES_FILE, "variant", "other", "'other' is not the trial's, 'filled'"),
        (LINK_SAMPLES_FILE, "time_ns", None, "nothing where a value has to be"),
        (LINK_SAMPLES_FILE, "wire_bytes", -1, "-1 is negative"),
        (PREFILL_REQUESTS_FILE, "outcome", "lost", "'lost' is none of admitted, "),
        (PREFILL_REQUESTS_FILE, "started_ns", 0, "0 is before arrival_ns"),
    ],
)
def test_what_cannot_be_is_refused_by_file_column_and_row(
    trial: Path, name: str, column: str, value: Any, text: str
) -> None:
    put(trial / name, column, 2, value)
    said = refusal(trial.parents[3])
    assert said.startswith(f"{trial / name}: column {column}, row 2: {text}")
    assert said.endswith("the file is damaged: restore it, or run again")


def test_what_may_be_unknown_may_be_missing(trial: Path) -> None:
    put(trial / LINK_SAMPLES_FILE, "packets", 2, None)
    put(trial / PREFILL_REQUESTS_FILE, "promised_ns", 2, None)
    assert results.load(trial.parents[3]).link_samples["packets"].isna().sum() == 1


@pytest.mark.parametrize("name", [name for name, table in TRIAL_TABLES.items() if table.always])
def test_a_missing_table_is_reported_as_missing(trial: Path, name: str) -> None:
    (trial / name).unlink()
    assert refusal(trial.parents[3]).startswith(f"{trial / name} is missing: restore it, or run again")


def test_samples_of_gpus_are_there_only_where_nvml_was_asked(trial: Path) -> None:
    assert not (trial / GPU_SAMPLES_FILE).exists()
    assert results.load(trial.parents[3]).gpu_samples.empty
    sample = GpuSample(5, "GPU-1", 0.37, None, 412.5, 1_980_000_000, None, 54, "power cap")
    write_table(trial / GPU_SAMPLES_FILE, GPU_SAMPLES, [(0, "filled", 0, *sample)])
    (row,) = results.load(trial.parents[3]).gpu_samples.to_dict("records")
    assert (row["device"], row["utilization"], row["throttled"]) == ("GPU-1", 0.37, "power cap")
    put(trial / GPU_SAMPLES_FILE, "power_w", 0, -1.0)
    assert refusal(trial.parents[3]).startswith(f"{trial / GPU_SAMPLES_FILE}: column power_w, row 0: -1.0 is negative")


@pytest.mark.parametrize("name", [TCP_SAMPLES_FILE, PREFILL_REQUESTS_FILE])
def test_a_trial_of_version_1_never_had_all_tables(trial: Path, name: str) -> None:
    (trial / name).unlink()
    as_version(1, trial / SPANS_FILE)
    assert len(results.load(trial.parents[3]).trials) == 2


def test_the_calibration_of_another_sweep_point_is_refused(trial: Path) -> None:
    calibration = trial.parents[3] / "calibration"
    shutil.copy(calibration / "point-000.parquet", calibration / "point-001.parquet")
    with pytest.raises(RunError, match=r"point-001\.parquet: column sweep_point: 0 belongs in point-000\.parquet"):
        results.load(trial.parents[3])
