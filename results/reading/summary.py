"""Summarize a run, one row a trial: the figures that reports, comparisons and scripts start from."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
import pyarrow as pa

from wanbed.ground.files import written_whole
from wanbed.results import metrics
from wanbed.results.reading.known_misses import known_misses_of
from wanbed.results.reading.not_modelled import of_links, of_variant, simulated_without
from wanbed.results.reading.stored_trial import StoredTrial, TrialFaults, swept_values
from wanbed.results.reading.trial_rows import (
    clocks_of,
    counted_window,
    counted_windows,
    rows_by_trial,
    spans_of_one_part,
)
from wanbed.results.reading.validity import MachineLoad, WaysAround
from wanbed.results.records.documents import SIMULATE
from wanbed.results.records.run_store import SUMMARY_FILE
from wanbed.results.records.schema import SUMMARY, swept_column, with_columns
from wanbed.results.records.table_files import write_tables

FIELDS = (
    "sweep_point",
    "variant",
    "repeat",
    "iteration_time_s",
    "iteration_times_s",
    "slowest_replica_time_s",
    "bound_s",
    "bound_part",
    "over_bound",
    "makespan_s",
    "makespan_bound_s",
    "gpu_utilization",
    "gpu_utilization_with_prefill",
    "wan_bytes",
    "wan_goodput_bps",
    "tokens_per_s",
    "usd_per_iteration",
    "egress_usd_per_iteration",
    "usd_per_h",
    "usd_per_million_tokens",
    "calibrated",
    "saturated",
    "cores_saturated_fraction",
    "network_core_busy_fraction",
    "dilation",
    "engine",
    "clock",
    "not_modelled",
    "known_misses",
    "outcome",
    "training_goodput",
    "iterations_lost",
    "time_to_detect_s",
    "time_to_recover_s",
)
"""The columns that every summary has. Those of the swept paths follow ``sweep_point``."""

_TYPES = {
    "sweep_point": "int32",
    "repeat": "int32",
    "iteration_time_s": "float64",
    "slowest_replica_time_s": "float64",
    "bound_s": "float64",
    "over_bound": "float64",
    "makespan_s": "float64",
    "makespan_bound_s": "float64",
    "gpu_utilization": "float64",
    "gpu_utilization_with_prefill": "float64",
    "wan_bytes": "Int64",
    "wan_goodput_bps": "float64",
    "tokens_per_s": "float64",
    "usd_per_iteration": "float64",
    "egress_usd_per_iteration": "float64",
    "usd_per_h": "float64",
    "usd_per_million_tokens": "float64",
    "calibrated": "bool",
    "saturated": "bool",
    "cores_saturated_fraction": "float64",
    "network_core_busy_fraction": "float64",
    "training_goodput": "float64",
    "iterations_lost": "Int64",
    "time_to_detect_s": "float64",
    "time_to_recover_s": "float64",
}


def calibrated_points(calibration: pd.DataFrame) -> set[int]:
    """Return the sweep points whose links were measured and are all within tolerance."""
    verdicts = calibration.groupby("sweep_point")["within_tolerance"].all()
    return {int(point) for point in verdicts[verdicts.astype(bool)].index}


def summarize(
    manifest: Mapping[str, Any],
    trials: Sequence[StoredTrial],
    spans: pd.DataFrame,
    link_samples: pd.DataFrame,
    calibration: pd.DataFrame,
) -> pd.DataFrame:
    """Return a data frame of ``FIELDS`` and the swept paths, one row a trial, in the order of ``trials``.

    What could not be measured is missing (NaN, or NA for a count).
    """
    spans_of, samples_of = rows_by_trial(spans), rows_by_trial(link_samples)
    calibrated = calibrated_points(calibration)
    rows = []
    for trial in trials:
        without = simulated_without(manifest, trial.point)
        settings = trial.settings
        load, faults = MachineLoad.of(trial.facts), TrialFaults.of(trial.facts)
        figures = _figures(trial, spans_of.get(trial.id, spans[:0]), samples_of.get(trial.id, link_samples[:0]))
        rows.append(
            {
                "sweep_point": trial.point,
                "variant": trial.variant,
                "repeat": trial.repeat,
                **figures,
                "calibrated": (settings.get("engine") == SIMULATE and not of_links(without))
                or (trial.point in calibrated and not WaysAround.of(trial.facts).used),
                "saturated": load.saturated,
                "cores_saturated_fraction": load.cores_saturated,
                "network_core_busy_fraction": load.network_core_busy,
                "dilation": settings.get("dilation"),
                "engine": settings.get("engine"),
                "clock": settings.get("clock"),
                "not_modelled": [each.text_of_one for each in of_variant(without, trial.variant)],
                "known_misses": [each.name for each in known_misses_of(trial.facts)],
                "outcome": faults.outcome,
                "training_goodput": faults.training_goodput,
                "iterations_lost": faults.iterations_lost,
                "time_to_detect_s": faults.time_to_detect_s,
                "time_to_recover_s": faults.time_to_recover_s,
            }
        )
    first, *others = FIELDS
    figures_of_all = pd.DataFrame(rows, columns=[first, *others], dtype=object).astype(_TYPES)
    swept = swept_columns(manifest, [trial.point for trial in trials])
    return pd.concat([figures_of_all[[first]], swept, figures_of_all[others]], axis="columns")


def _figures(trial: StoredTrial, spans: pd.DataFrame, link_samples: pd.DataFrame) -> dict[str, Any]:
    first, profiled = trial.first_measured_iteration, trial.profiled_iterations
    of_part = spans_of_one_part(trial, spans)
    lone = metrics.iteration_windows(of_part)
    windows = counted_windows(trial, lone)
    window = counted_window(trial, windows, of_part)
    times_s = metrics.iteration_times_s(windows, first, profiled)
    clocks = clocks_of(trial, spans)
    time_s = metrics.mean_time_s(times_s) if clocks is None else clocks.iteration_time_s
    alone, with_prefill = (None, None) if window is None else _utilizations(trial, of_part, window)
    # A program says itself how many tokens it trains on, and how much of its traffic is payload is not known.
    own = trial.settings if trial.program is None else trial.facts
    bound_s, bound_part = trial.bound or (None, None)
    sent_bytes = metrics.wan_bytes_by_link(spans, link_samples)
    return {
        "iteration_time_s": time_s,
        "iteration_times_s": times_s,
        "slowest_replica_time_s": None if clocks is None else clocks.slowest_s,
        "bound_s": bound_s,
        "bound_part": bound_part,
        "over_bound": metrics.over_bound(time_s, bound_s),
        "makespan_s": metrics.median_time_s(_makespans_s(trial, lone, windows)),
        "makespan_bound_s": trial.makespan_bound_s,
        "gpu_utilization": alone,
        "gpu_utilization_with_prefill": with_prefill,
        "wan_bytes": None if sent_bytes is None else sum(sent_bytes.values()),
        "wan_goodput_bps": (
            metrics.wan_goodput_bps(spans, window, trial.all_reduce_wan_ratio)
            if window and trial.program is None
            else None
        ),
        "tokens_per_s": metrics.tokens_per_s(own.get("tokens_per_iteration"), time_s),
        **_costs(trial, sent_bytes, time_s),
    }


def _costs(
    trial: StoredTrial, sent_bytes: Mapping[tuple[str, str], int] | None, time_s: float | None
) -> dict[str, Any]:
    """Return what training costs, empty where it is not known."""
    prices = trial.prices
    if prices is None or sent_bytes is None or time_s is None:
        return {}
    cost = prices.cost(sent_bytes, time_s)
    return {
        "usd_per_iteration": cost.usd,
        "egress_usd_per_iteration": cost.egress_usd,
        "usd_per_h": cost.usd_per_h,
        "usd_per_million_tokens": cost.usd_per_million(trial.settings.get("tokens_per_iteration")),
    }


def _makespans_s(trial: StoredTrial, lone: pd.DataFrame, counted: pd.DataFrame) -> list[float]:
    """Return how long each iteration after warm-up lasted by itself, of those that count."""
    if trial.sync_every is not None:
        return []
    own = lone[lone.index.isin(counted.index)]
    return metrics.iteration_times_s(own, trial.warmup_iterations, trial.profiled_iterations)


def _utilizations(trial: StoredTrial, spans: pd.DataFrame, window: metrics.Window) -> tuple[float | None, float | None]:
    """Return the utilization of the trial's GPUs without prefill and with it."""
    if trial.program is not None:
        profiled = metrics.profiled_iterations(spans, trial.profiled_iterations)
        utilization = metrics.gpu_utilization(metrics.program_busy(metrics.program_parts(spans, profiled)))
        return utilization, utilization
    return metrics.gpu_utilizations(spans, window)


def summary_rows(summary: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the summary as plain dictionaries, fit for JSON: what could not be measured is None.

    The swept values stand together in ``swept``, by path.
    """
    rows = []
    for record in summary.to_dict("records"):
        row = {str(field): _plain(value) for field, value in record.items()}
        swept = {path: row.pop(path) for path in tuple(row) if path not in FIELDS}
        rows.append({"sweep_point": row.pop("sweep_point"), "swept": swept, **row})
    return rows


def _plain(value: Any) -> Any:
    return None if not isinstance(value, (dict, list)) and pd.isna(value) else value


def write_summary(summary: pd.DataFrame, run: Path) -> Path:
    """Write a run's summary to its folder, for tools that do not use this package. Return the file's path.

    ``results.load`` does not read this file: it computes the summary from the traces.
    """
    paths = [str(path) for path in summary if path not in FIELDS]
    schema = with_columns(SUMMARY, [swept_column(path, _arrow_type(summary[path])) for path in paths], after=1)
    path = run / SUMMARY_FILE
    with written_whole(path) as partial:
        write_tables(partial, schema, [pa.Table.from_pandas(summary, schema, preserve_index=False)])
    return path


def _arrow_type(values: "pd.Series[Any]") -> pa.DataType:
    if isinstance(values.dtype, pd.CategoricalDtype):
        return pa.dictionary(pa.int32(), pa.string(), ordered=True)
    return pa.float64() if pd.api.types.is_float_dtype(values) else pa.int64()


def swept_columns(manifest: Mapping[str, Any], points: Sequence[int]) -> pd.DataFrame:
    """Return a column for each swept path of a run, with a row for each of ``points``.

    A path of which all values are numbers has a column of numbers. Any other has an ordered categorical of the values
    as text, in the order of the sweep, because as plain text 10ms would come before 5ms.
    """
    swept: dict[str, list[str]] = {}
    for entry in manifest.get("sweep_points", ()):
        for path, text in entry["sweep_point"].items():
            swept.setdefault(path, []).append(text)
    rows = [swept_values(manifest, point) for point in points]
    return pd.DataFrame(
        {path: _column([row.get(path) for row in rows], list(dict.fromkeys(swept[path]))) for path in swept},
        index=range(len(rows)),
    )


def _column(texts: Sequence[str | None], in_order: Sequence[str]) -> "pd.Series[Any]":
    numbers = {text: _number(text) for text in in_order}
    if None not in numbers.values():
        return pd.Series([None if text is None else numbers[text] for text in texts])
    return pd.Series(texts, dtype=pd.CategoricalDtype(pd.Index(in_order), ordered=True))


def _number(text: str) -> float | int | None:
    try:
        value = json.loads(text, parse_constant=_refuse)
    except ValueError:
        return None
    return value if type(value) in {int, float} else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
