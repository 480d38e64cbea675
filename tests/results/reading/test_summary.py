"""The summary is tidy: what data frames group, pivot and merge by stands in plain columns."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from wanbed import results
from wanbed.results.reading.run import Run
from wanbed.results.reading.summary import FIELDS, summary_rows, swept_columns, write_summary
from wanbed.results.records.schema import SUMMARY

BuildRun = Callable[..., Path]

LATENCY, MICROBATCHES = "topology.wan.latency", "training.microbatches"


def written(run: Run) -> Path:
    return write_summary(run.summary, run.path)


def manifest(*points: dict[str, str]) -> dict[str, Any]:
    return {"sweep_points": [{"index": index, "sweep_point": values} for index, values in enumerate(points)]}


def test_the_sweep_point_is_the_number_that_every_other_table_has(build_run: BuildRun) -> None:
    run = results.load(build_run())
    joined = run.spans.merge(run.summary, on=["sweep_point", "variant", "repeat"], validate="many_to_one")
    assert len(joined) == len(run.spans)
    assert set(joined[LATENCY]) == {"10ms", "40ms"}


def test_groups_and_pivots_come_in_the_order_of_the_sweep(build_run: BuildRun) -> None:
    summary = results.load(build_run(latencies=("5ms", "40ms", "10ms"), repeats=2)).summary
    means = summary.groupby([LATENCY, "variant"], observed=True)["iteration_time_s"].mean()
    assert list(means.index.unique(LATENCY)) == ["5ms", "40ms", "10ms"]
    table = summary.pivot_table(index=LATENCY, columns="variant", values="iteration_time_s", observed=True)
    assert list(table.index) == ["5ms", "40ms", "10ms"]
    assert table.loc["40ms", "one connection"] == means["40ms", "one connection"]


def test_numbers_are_a_column_of_numbers() -> None:
    swept = swept_columns(manifest({MICROBATCHES: "8"}, {MICROBATCHES: "16"}), [1, 0, 1])
    assert swept[MICROBATCHES].tolist() == [16, 8, 16]
    assert pd.api.types.is_integer_dtype(swept[MICROBATCHES])


@pytest.mark.parametrize("value", ["auto", "true", "NaN", "[1]"])
def test_one_value_that_is_no_number_makes_the_column_text(value: str) -> None:
    swept = swept_columns(manifest({MICROBATCHES: "8"}, {MICROBATCHES: value}), [0, 1])
    assert list(swept[MICROBATCHES].cat.categories) == ["8", value]


def test_each_path_has_its_column_and_no_sweep_has_none() -> None:
    both = {LATENCY: "10ms", MICROBATCHES: "8"}
    assert list(swept_columns(manifest(both), [0, 0])) == [LATENCY, MICROBATCHES]
    assert swept_columns(manifest({}), [0, 0, 0]).shape == (3, 0)


def test_the_file_says_what_the_summary_says(build_run: BuildRun) -> None:
    run = results.load(build_run(repeats=2))
    file = written(run)
    assert file == run.path / "summary.parquet"
    read = pd.read_parquet(file)
    for kept, row in zip(read.to_dict("records"), summary_rows(run.summary), strict=True):
        assert {path: kept.pop(path) for path in row["swept"]} == row.pop("swept")
        for listed in ("iteration_times_s", "not_modelled", "known_misses"):
            assert list(kept.pop(listed)) == row.pop(listed)
        assert {name: None if pd.isna(value) else value for name, value in kept.items()} == row


def test_its_columns_are_the_documented_fields_each_with_its_meaning(build_run: BuildRun) -> None:
    assert tuple(SUMMARY.names) == FIELDS
    assert all(column.metadata[b"meaning"] for column in SUMMARY)
    first, *others = FIELDS
    read = pd.read_parquet(written(results.load(build_run())))
    assert list(read) == [first, "topology.wan.latency", *others]
    assert list(pd.read_parquet(written(results.load(build_run(latencies=("10ms",)))))) == list(FIELDS)


def test_swept_values_read_back_in_the_order_of_the_sweep(build_run: BuildRun) -> None:
    latencies = pd.read_parquet(written(results.load(build_run(latencies=("5ms", "10ms")))))["topology.wan.latency"]
    assert list(latencies.cat.categories) == ["5ms", "10ms"]
    assert latencies.cat.ordered


def test_what_could_not_be_measured_is_null(build_run: BuildRun) -> None:
    path = build_run(manifest={"warmup_iterations": 3, "tokens_per_iteration": None})
    read = pd.read_parquet(written(results.load(path)))
    assert read[["iteration_time_s", "gpu_utilization", "tokens_per_s"]].isna().all(axis=None)
    assert [list(times) for times in read["iteration_times_s"]] == [[]] * len(read)


def test_a_run_without_a_finished_trial_has_no_rows(build_run: BuildRun) -> None:
    assert len(pd.read_parquet(written(results.load(build_run(finished_trials=0))))) == 0


def test_writing_it_again_replaces_it_and_leaves_nothing_beside_it(build_run: BuildRun) -> None:
    run = results.load(build_run())
    once = written(run).read_bytes()
    assert written(run).read_bytes() == once
    assert not list(run.path.glob("*.partial"))


@pytest.mark.parametrize("name", ["a 10ms <b>", "\u202eright to left", 'quo"ted'])
def test_hostile_names_read_back_as_they_were(build_run: BuildRun, name: str) -> None:
    path = build_run(variants=(name,), latencies=("10ms",))
    assert list(pd.read_parquet(written(results.load(path)))["variant"]) == [name]
