"""The summary is tidy: what data frames group, pivot and merge by stands in plain columns."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from wanbed import results
from wanbed.results.reading.summaries.swept_columns import swept_columns

BuildRun = Callable[..., Path]
LATENCY, MICROBATCHES = "topology.wan.latency", "training.microbatches"


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
