"""Tabulate the results: the main table of a report, and what its variants differ in."""

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from operator import itemgetter
from typing import Any

from wanbed.results.metrics.bootstrap import ENOUGH_REPEATS, FEWEST_REPEATS
from wanbed.results.reading.headline import HeadlineRow, RowCost, by_point, variant_fields, worth_note
from wanbed.results.reading.run import Run
from wanbed.results.report.reported_runs import ReportedRuns
from wanbed.results.report.table import Column, Table, TableCell, series_columns
from wanbed.results.text import (
    UNKNOWN,
    percent_text,
    rate_text,
    ratio_text,
    seconds_interval_text,
    seconds_text,
    size_text,
    usd_text,
)

_TIME = (
    "The iteration time is the period of training: the time from the end of one iteration to the end of the next, mean "
    "over the measured ones. The makespan is how long one lasts by itself, from its first start to its last end; it is "
    "longer where iterations overlap."
)
_DISTURBED = (
    "Where links change or something is to fail, the worst iteration stands with it, and the share of the time that "
    "was lost against as many median iterations."
)
_BOUND = (
    "The lower bound is a time below which no iteration time can come with this placement, transport and computation, "
    "whatever the schedule; with the ratio stands what it consists of the most."
)
_UTILIZATION = (
    "Utilization is the time for which training's GPUs computed the measured iterations, over their number x the period"
)
_WAN = "WAN bytes include headers and warm-up; goodput is the payload after warm-up, over all links."

_COST = (
    "The cost is that of training's GPUs for an iteration time and of the bytes that an iteration sends over the WAN, "
    "by the prices of the file; beneath it that of an hour, and the part of it for those bytes."
)

_Fields = tuple[str, Sequence[str]]
"""The name of a variant, and its values."""


def headline_table(reported: ReportedRuns) -> Table | None:
    """Return the main table of one run or several; None if no trial has finished."""
    rows = reported.headline
    bounded = any(row.over_bound is not None for row in rows)
    standing = _standing_of(rows)
    columns: list[Column[HeadlineRow]] = [
        *series_columns(rows),
        Column("iteration time", _iteration_time, _statistic(rows)),
        Column("speed-up", lambda row: TableCell(ratio_text(row.speed_up), value=row.speed_up)),
        *([Column("iteration / lower bound", _over_bound)] if bounded else []),
        Column("makespan", lambda row: TableCell(seconds_text(row.times.makespan_s), value=row.times.makespan_s)),
        Column("GPU utilization", _utilization),
        Column("WAN bytes per trial", lambda row: TableCell(size_text(row.wan.sent_bytes), value=row.wan.sent_bytes)),
        Column("WAN goodput", lambda row: TableCell(rate_text(row.wan.goodput_bps), value=row.wan.goodput_bps)),
        *([Column(_cost_heading(rows), _cost)] if any(row.cost is not None for row in rows) else []),
        *([Column(standing, _standing)] if standing else []),
    ]
    ordered = [row for _, own in by_point(rows) for row in own]
    return Table.of("results", "Results", ordered, columns, "", note=_note(rows))


def differing_table(run: Run) -> Table | None:
    """Return the table of what a run's variants differ in; None if in nothing."""
    fields = variant_fields(run.manifest, run.variants)
    columns: list[Column[_Fields]] = [
        Column("variant", itemgetter(0)),
        *(Column[_Fields](name.replace("_", " "), partial(_field, place)) for place, name in enumerate(fields.columns)),
    ]
    rows = list(fields.rows.items()) if fields.columns else []
    return Table.of("differing", "What the variants differ in", rows, columns, "")


def _field(place: int, row: _Fields) -> str:
    return row[1][place]


def _statistic(rows: Sequence[HeadlineRow]) -> str:
    if any(row.times.interval_s is not None for row in rows):
        return "median (95\N{NO-BREAK SPACE}% interval)"
    return "median" if any(row.repeats > 1 for row in rows) else ""


def _iteration_time(row: HeadlineRow) -> TableCell:
    interval = seconds_interval_text(row.times.interval_s) if row.times.interval_s else row.times.without_interval
    beneath = [
        "" if row.times.slowest_replica_s is None else f"slowest replica {seconds_text(row.times.slowest_replica_s)}",
        "" if row.times.disturbed is None else row.times.disturbed.text,
        f"{interval}: {seconds_interval_text(row.times.range_s)}" if row.times.range_s else interval,
    ]
    return TableCell(seconds_text(row.times.median_s), tuple(filter(None, beneath)), row.times.median_s)


def _over_bound(row: HeadlineRow) -> TableCell:
    return TableCell(ratio_text(row.over_bound), (row.bound.part,) if row.bound else (), row.over_bound)


def _utilization(row: HeadlineRow) -> TableCell:
    both = (f"{percent_text(row.gpus.with_prefill)} with prefill",) if row.gpus.prefilled else ()
    return TableCell(percent_text(row.gpus.training), both, row.gpus.training)


def _cost_heading(rows: Sequence[HeadlineRow]) -> str:
    with_tokens = any(row.cost is not None and row.cost.usd_per_million_tokens is not None for row in rows)
    return "cost of a million tokens" if with_tokens else "cost of an iteration"


def _cost(row: HeadlineRow) -> TableCell:
    cost = row.cost
    if cost is None:
        return TableCell(UNKNOWN)
    share = cost.egress_usd_per_iteration / cost.usd_per_iteration if cost.usd_per_iteration else 0.0
    value = cost.usd_per_iteration if cost.usd_per_million_tokens is None else cost.usd_per_million_tokens
    beneath = (f"{usd_text(cost.usd_per_h)} an hour", f"{percent_text(share)} for bytes sent")
    return TableCell(usd_text(value), beneath, value)


def _standing_of(rows: Sequence[HeadlineRow]) -> str:
    """Return the heading of the column that says how far figures can be trusted; "" if all can be."""
    if any(not (row.standing.simulated and row.standing.calibrated) for row in rows):
        return "calibrated"
    return "simulation" if any(row.standing.known_misses for row in rows) else ""


def _standing(row: HeadlineRow) -> TableCell:
    """Say whether the row's links were as configured, and whether its machine was saturated."""
    if row.standing.simulated:
        text = "simulated" if row.standing.calibrated else f"simulated without {', '.join(row.standing.not_modelled)}"
        off = (
            (f"known to be off: {', '.join(each.mark for each in row.standing.known_misses)}",)
            if row.standing.known_misses
            else ()
        )
        return TableCell(text, off, bad=not row.standing.calibrated)
    links = "yes" if row.standing.calibrated else "no"
    if not row.standing.saturation.saturated:
        return TableCell(links, bad=not row.standing.calibrated)
    return TableCell(
        f"{links}, {'but' if row.standing.calibrated else 'and'} saturated", (row.standing.saturation.mark,), bad=True
    )


def _note(rows: Sequence[HeadlineRow]) -> str:
    several_runs = len({row.run for row in rows}) > 1
    with_prefill = (
        ", and with it the same with prefill in its bubbles" if any(row.gpus.prefilled for row in rows) else ""
    )
    sentences = [
        _TIME,
        _DISTURBED if any(row.times.disturbed is not None for row in rows) else "",
        *(worth_note(rows), interval_note(rows), saturation_note(rows)),
        f"Speed-up is against the first variant at the same sweep point{' of the same run' if several_runs else ''}.",
        _BOUND if any(row.over_bound is not None for row in rows) else "",
        f"{_UTILIZATION}{with_prefill}; it does not show how many of a GPU's multiprocessors compute.",
        _WAN,
        _COST if any(row.cost is not None for row in rows) else "",
    ]
    return " ".join(filter(None, sentences))


def interval_note(rows: Sequence[HeadlineRow]) -> str:
    """Explain the intervals, how reliable they are, and why some rows have none; empty if nothing was measured."""
    with_interval = [row for row in rows if row.times.interval_s is not None]
    sentences = []
    if with_interval:
        repeats = _range_text([len(row.times.of_repeats_s) for row in with_interval], "repeat")
        iterations = _range_text(
            [round(row.times.iterations / len(row.times.of_repeats_s)) for row in with_interval], "measured iteration"
        )
        sentences.append(
            f"The range under an iteration time is its 95 % bootstrap interval, from {repeats} of {iterations}: "
            "repeats are resampled, since an iteration's end depends on that of the one before it."
        )
    if any(len(row.times.of_repeats_s) < ENOUGH_REPEATS for row in with_interval):
        sentences.append(
            f"With fewer than {ENOUGH_REPEATS} repeats it is hardly more than their range, and misses the true median "
            "more often than 5 times in 100: with 3 repeats about 20 times."
        )
    if any(row.times.without_interval for row in rows):
        sentences.append(
            f"Fewer than {FEWEST_REPEATS} repeats have no interval: they do not show how much repeats differ, "
            "however many iterations they have."
        )
    return " ".join(sentences)


def saturation_note(rows: Sequence[HeadlineRow]) -> str:
    """Explain what a saturated row means; empty if there is none."""
    if not any(row.standing.saturation.saturated for row in rows):
        return ""
    return (
        "Saturated: for the given share of a trial's time, all cores were busy, or the core that carries the "
        "network was. Such figures measure the machine, not the network."
    )


def _range_text(counts: Sequence[int], singular: str) -> str:
    low, high = min(counts), max(counts)
    number = str(low) if low == high else f"{low} to {high}"
    return f"{number} {singular}{'' if high == 1 else 's'}"


def headline_figures(row: HeadlineRow) -> dict[str, Any]:
    """Return the exact figures of a row in plain JSON types, with their unit in the name."""
    low_s, high_s = row.times.interval_s or (None, None)
    return {
        "run": row.run,
        "variant": row.variant,
        "repeats": row.repeats,
        "iterations": row.times.iterations,
        "iteration_time_s": row.times.median_s,
        "iteration_time_low_s": low_s,
        "iteration_time_high_s": high_s,
        "slowest_replica_time_s": row.times.slowest_replica_s,
        "bound_s": row.bound and row.bound.time_s,
        "bound_part": row.bound and row.bound.part,
        "over_bound_ratio": row.over_bound,
        "makespan_s": row.times.makespan_s,
        "worst_iteration_s": None if row.times.disturbed is None else row.times.disturbed.worst_s,
        "lost_fraction": None if row.times.disturbed is None else row.times.disturbed.lost,
        "fastest_repeat_s": row.times.fastest_s,
        "slowest_repeat_s": row.times.slowest_s,
        "speed_up_ratio": row.speed_up,
        "gpu_utilization_fraction": row.gpus.training,
        "gpu_utilization_with_prefill_fraction": row.gpus.with_prefill,
        "wan_bytes": _count(row.wan.sent_bytes),
        "wan_goodput_bps": row.wan.goodput_bps,
        "tokens_per_s": row.tokens_per_s,
        "calibrated": row.standing.calibrated,
        "saturated": bool(row.standing.saturation.saturated),
        "saturated_repeats": row.standing.saturation.saturated,
        "cores_saturated_fraction": row.standing.saturation.worst.cores_saturated,
        "network_core_busy_fraction": row.standing.saturation.worst.network_core_busy,
        "simulated": row.standing.simulated,
        "not_modelled": list(row.standing.not_modelled),
        "known_misses": [each.name for each in row.standing.known_misses],
    }


def cost_figures(row: HeadlineRow) -> dict[str, float | None]:
    """Return the exact costs of a row, null where they are not known."""
    return {field.name: None if row.cost is None else getattr(row.cost, field.name) for field in fields(RowCost)}


def _count(value: float | None) -> float | int | None:
    """Return a median of counts as an integer, unless it lies between two counts."""
    return int(value) if value is not None and value.is_integer() else value
