"""Build the report's table of calibration: each link as configured and as measured."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pandas as pd

from wanbed.ground.impairments import IMPAIRMENTS
from wanbed.results.report.reported_runs import ReportedRun
from wanbed.results.report.table import SWEEP_POINT, Column, Table, TableCell
from wanbed.results.text import count_text, impairment_text, list_text, milliseconds_text, percent_text, rate_text

MAX_ROWS = 60
_Row = Mapping[Any, Any]


def _unlimited(rate_bps: float) -> str:
    return "unlimited" if pd.isna(rate_bps) else rate_text(rate_bps)


def _where_measured(text: Callable[[float], str]) -> Callable[[float], str]:
    return lambda value: "" if pd.isna(value) else text(value)


_COLUMNS: dict[str, tuple[str, Any, Any]] = {
    "RTT": ("rtt_ms", _where_measured(milliseconds_text), milliseconds_text),
    "goodput": ("goodput_bps", _unlimited, rate_text),
    **{
        each.label: (
            each.column,
            _where_measured(partial(impairment_text, each)),
            _where_measured(partial(impairment_text, each)),
        )
        for each in IMPAIRMENTS
    },
    "short transfer": ("short_ms", _where_measured(milliseconds_text), _where_measured(milliseconds_text)),
    "both ways": ("both_ways_ms", _where_measured(milliseconds_text), _where_measured(milliseconds_text)),
    "share of the trunk": ("share_bps", _where_measured(rate_text), _where_measured(rate_text)),
    "trunk": ("together_bps", _where_measured(rate_text), _where_measured(rate_text)),
}
_ALWAYS = ("RTT", "goodput")


def calibration_table(own: ReportedRun) -> Table | None:
    """Return every path measured, with what beyond RTT and goodput some path has; None if nothing was measured.

    A sweep point whose links were measured at an earlier one has one row, which names the other. A path that changes
    has a row for each of its conditions that were measured. Of more than ``MAX_ROWS``, those outside tolerance are
    shown, then those whose RTT is farthest off.
    """
    run = own.run
    if run.calibration.empty:
        return None
    elsewhere = _measured_elsewhere(run.calibration)
    rows = run.calibration[~run.calibration["sweep_point"].isin(elsewhere)]
    shown = {
        name: column
        for name, column in _COLUMNS.items()
        if name in _ALWAYS or (rows[f"configured_{column[0]}"].fillna(0) > 0).any()
    }
    error = (rows["measured_rtt_ms"] / rows["configured_rtt_ms"] - 1).abs()
    order = rows.assign(error=error).sort_values(["within_tolerance", "error"], ascending=[True, False], kind="stable")
    chosen: list[_Row] = [*rows.loc[sorted(order.index[:MAX_ROWS])].to_dict("records")]
    chosen += [{"sweep_point": point, "measured_at": other} for point, other in elsewhere.items()]

    columns = (
        Column[_Row](SWEEP_POINT, lambda row: run.where(row["sweep_point"])),
        Column[_Row](
            "path",
            lambda row: f"as measured at {run.where(row['measured_at'])}" if "measured_at" in row else _path(row),
        ),
        *(Column[_Row](f"{name} measured", partial(_compared, column), "configured") for name, column in shown.items()),
        Column[_Row]("within tolerance", _verdict),
    )
    in_order = sorted(chosen, key=lambda row: int(row["sweep_point"]))
    title = "Calibration: configured against measured"
    return Table.of("calibration", title, in_order, columns, _reading(rows, min(len(rows), MAX_ROWS)))


def _measured_elsewhere(rows: pd.DataFrame) -> dict[int, int]:
    """Return, by the sweep points whose links were measured at an earlier one, that one."""
    points = rows[["sweep_point", "calibrated_at_point"]].dropna().astype(int).itertuples(index=False)
    return {point: measured_at for point, measured_at in points if measured_at != point}


def _path(row: _Row) -> str:
    inside = " (inside)" if row["scope"] == "intra" else ""
    since = f", from {row['condition']}" if isinstance(row["condition"], str) else ""
    return f"{row['source']} to {row['destination']}{inside}{since}"


def _compared(column: tuple[str, Any, Any], row: _Row) -> TableCell:
    name, configured, measured = column
    if "measured_at" in row:
        return TableCell("")
    beneath = configured(row[f"configured_{name}"])
    return TableCell(measured(row[f"measured_{name}"]), (beneath,) if beneath else ())


def _verdict(row: _Row) -> TableCell:
    if "measured_at" in row:
        return TableCell("")
    within = bool(row["within_tolerance"])
    return TableCell("yes" if within else "no", bad=not within)


def _reading(rows: pd.DataFrame, shown: int) -> str:
    outside = int((~rows["within_tolerance"].astype(bool)).sum())
    paths = count_text(len(rows), "measurement")
    all_of_them = "The only measurement is" if len(rows) == 1 else f"All {paths} are"
    verdict = f"{outside} of {paths} are outside tolerance" if outside else f"{all_of_them} within tolerance"
    rtt_off_ms = (rows["measured_rtt_ms"] - rows["configured_rtt_ms"]).abs().max()
    goodput_off = (rows["measured_goodput_bps"] / rows["configured_goodput_bps"] - 1).abs().max()
    worst: list[str] = []
    if pd.notna(rtt_off_ms):
        worst.append(f"RTT is off by {milliseconds_text(rtt_off_ms)}")
    if pd.notna(goodput_off):
        worst.append(f"goodput is off by {percent_text(goodput_off)}")
    for what, column in (("a short transfer", "short_ms"), ("a share of a trunk", "share_bps")):
        off = (rows[f"measured_{column}"].astype(float) / rows[f"configured_{column}"].astype(float) - 1).abs().max()
        if pd.notna(off):
            worst.append(f"{what} is off by {percent_text(off)}")
    reading = f"{verdict}; at most, {list_text(worst)}." if worst else f"{verdict}."
    return reading + (f" The {shown} farthest off are shown, the run's folder has all." if shown < len(rows) else "")
