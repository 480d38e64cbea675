"""The summary as other tools read it."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from wanbed import results
from wanbed.results.reading.summaries.summary import FIELDS, summary_rows
from wanbed.results.reading.summaries.summary_table import write_summary
from wanbed.results.records.schema import SUMMARY

BuildRun = Callable[..., Path]


def test_the_file_says_what_the_summary_says(build_run: BuildRun) -> None:
    run = results.load(build_run(repeats=2))
    file = write_summary(run)
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
    read = pd.read_parquet(write_summary(results.load(build_run())))
    assert list(read) == [first, "topology.wan.latency", *others]
    assert list(pd.read_parquet(write_summary(results.load(build_run(latencies=("10ms",)))))) == list(FIELDS)


def test_swept_values_read_back_in_the_order_of_the_sweep(build_run: BuildRun) -> None:
    latencies = pd.read_parquet(write_summary(results.load(build_run(latencies=("5ms", "10ms")))))[
        "topology.wan.latency"
    ]
    assert list(latencies.cat.categories) == ["5ms", "10ms"]
    assert latencies.cat.ordered


def test_what_could_not_be_measured_is_null(build_run: BuildRun) -> None:
    path = build_run(manifest={"warmup_iterations": 3, "tokens_per_iteration": None})
    read = pd.read_parquet(write_summary(results.load(path)))
    assert read[["iteration_time_s", "gpu_utilization", "tokens_per_s"]].isna().all(axis=None)
    assert [list(times) for times in read["iteration_times_s"]] == [[]] * len(read)


def test_a_run_without_a_finished_trial_has_no_rows(build_run: BuildRun) -> None:
    assert len(pd.read_parquet(write_summary(results.load(build_run(finished_trials=0))))) == 0


def test_writing_it_again_replaces_it_and_leaves_nothing_beside_it(build_run: BuildRun) -> None:
    run = results.load(build_run())
    once = write_summary(run).read_bytes()
    assert write_summary(run).read_bytes() == once
    assert not list(run.path.glob("*.partial"))


@pytest.mark.parametrize("name", ["a 10ms <b>", "\u202eright to left", 'quo"ted'])
def test_hostile_names_read_back_as_they_were(build_run: BuildRun, name: str) -> None:
    path = build_run(variants=(name,), latencies=("10ms",))
    assert list(pd.read_parquet(write_summary(results.load(path)))["variant"]) == [name]
