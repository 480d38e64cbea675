"""Tabulate prefill: the outcomes of the requests, TTFT and throughput, and the impact on training."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from wanbed.results.metrics import REJECTION_REASONS, TTFT_PERCENTILES
from wanbed.results.reading.run import Run
from wanbed.results.report.gpu_time_shares import GpuTimeShares
from wanbed.results.report.prefill.prefill_impact import MARGIN, Impact, impacts
from wanbed.results.report.prefill.prefill_reading import bubbles_reading, impact_reading, outcomes_reading
from wanbed.results.report.prefill.prefill_service import PrefillRow, prefill_rows
from wanbed.results.report.table import Column, Table, TableCell, series_columns
from wanbed.results.text.number_text import UNKNOWN, amount_text, seconds_text, three_digits

_COUNTS = (
    *("offered", "admitted", "off_loaded", "held", "rejected"),
    *(f"rejected_{reason}" for reason in REJECTION_REASONS),
    *("late", "unfinished", "was_held"),
)
_TTFTS = tuple((percent, name) for name in ("ttft", "ttft_without_kv") for percent in TTFT_PERCENTILES)
_NOTE_OF_OUTCOMES = (
    "Requests count if they arrived after training's warm-up and before its last iteration ended; deadline overruns "
    "count over the whole trial. Unfinished: admitted or off-loaded, but not answered when the trial ended. Late: the "
    "first token came after the SLO. Deadline overrun: training had to wait for a GPU until prefill left it."
)
_NOTE_OF_SERVICE = (
    "TTFT, the time to first token, lasts from a request's arrival until its whole KV cache is at the decode host; "
    "the second time is without that transfer. Unfinished requests have none and are left out. Percentiles are by "
    "nearest rank. Tokens per GPU-hour are the prompt tokens whose prefill was completed in the measured time, divided "
    "by the hours of all GPUs, including a pool's. The last column is the number of GPUs of a dedicated pool that "
    "would have spent as much time on prefill, if busy all the time and if busy 80 % of the time."
)


def prefill_of(runs: Mapping[str, Run]) -> tuple[list[PrefillRow], list[Impact]]:
    """Return all rows and impacts of runs, which are given by label."""
    rows = [row for label, run in runs.items() for row in prefill_rows(run, label)]
    return rows, [impact for label, run in runs.items() for impact in impacts(run, label)]


def prefill_tables(rows: Sequence[PrefillRow], shares: Sequence[GpuTimeShares]) -> list[Table]:
    """Return the tables of the service; none if nothing was prefilled. ``shares`` say what filled the bubbles."""
    named = series_columns(rows)
    found = (
        Table.of(
            "prefill",
            "Outcomes of the requests",
            rows,
            [*named, *_OUTCOMES],
            outcomes_reading(rows) if rows else "",
            note=_NOTE_OF_OUTCOMES,
        ),
        Table.of(
            "prefill_service",
            "Time to first token and throughput",
            rows,
            [*named, *_SERVICE],
            bubbles_reading(shares),
            note=_NOTE_OF_SERVICE,
        ),
    )
    return [table for table in found if table is not None]


def impact_table(impacts: Sequence[Impact]) -> Table | None:
    """Return the table of prefill's impact on training; None if no variant has a counterpart without prefill."""
    columns = [*series_columns(impacts), *_IMPACT]
    return Table.of("impact", "Impact on training", impacts, columns, "", note=impact_reading(impacts))


def _requests(row: PrefillRow) -> TableCell:
    rate = () if row.offered_per_s is None else (f"{three_digits(row.offered_per_s)} a second",)
    return TableCell(str(row.counts["offered"]), rate)


def _rejected(row: PrefillRow) -> TableCell:
    reasons = tuple(f"{number} {reason.replace('_', ' ')}" for reason, number in row.rejections.items())
    return TableCell(str(row.counts["rejected"]), reasons)


def _overruns(row: PrefillRow) -> TableCell:
    lasted = (seconds_text(row.overrun_ns / 1e9),) if row.overrun_ns else ()
    return TableCell(UNKNOWN if row.deadline_overruns is None else str(row.deadline_overruns), lasted)


def _ttft(percent: int, row: PrefillRow) -> TableCell:
    without_kv_s = row.ttft_without_kv_s[percent]
    beneath = () if without_kv_s is None else (seconds_text(without_kv_s),)
    return TableCell(seconds_text(row.ttft_s[percent]), beneath, row.ttft_s[percent])


def _pool(row: PrefillRow) -> TableCell:
    if row.pool_equivalent is None or row.pool_equivalent_at_80 is None:
        return TableCell(UNKNOWN)
    return TableCell(three_digits(row.pool_equivalent), (f"{three_digits(row.pool_equivalent_at_80)} at 80 %",))


def _ratio(each: Impact) -> TableCell:
    interval = () if each.interval is None else ("{:.4f} to {:.4f}".format(*each.interval),)
    return TableCell(f"{each.ratio:.4f}", interval, each.ratio)


_OUTCOMES: tuple[Column[PrefillRow], ...] = (
    Column("requests", _requests),
    Column("admitted to bubbles", lambda row: str(row.counts["admitted"])),
    Column("off-loaded to the pool", lambda row: str(row.counts["off_loaded"])),
    Column("of them unfinished", lambda row: str(row.counts["unfinished"])),
    Column("held at the end", lambda row: str(row.counts["held"])),
    Column("rejected", _rejected),
    Column("late", lambda row: str(row.counts["late"])),
    Column("deadline overruns", _overruns),
)
_SERVICE: tuple[Column[PrefillRow], ...] = (
    *(Column[PrefillRow](f"TTFT p{percent}", partial(_ttft, percent)) for percent in TTFT_PERCENTILES),
    Column(
        "tokens per GPU-hour",
        lambda row: TableCell(amount_text(row.tokens_per_gpu_hour), value=row.tokens_per_gpu_hour),
    ),
    Column("a pool's GPUs for it", _pool),
)
_IMPACT: tuple[Column[Impact], ...] = (
    Column("against", lambda each: each.without),
    Column("pairs", lambda each: str(each.pairs)),
    Column("ratio of iteration times", _ratio),
    Column(f"within {100 * MARGIN:g} %", lambda each: each.words),
)


def prefill_figures(row: PrefillRow | None) -> dict[str, Any]:
    """Return exact figures by name; names begin with ``prefill_`` and contain the unit.

    All are None if there was no prefill.
    """
    figures: dict[str, Any] = {"policy": row and row.policy, "offered_per_s": row and row.offered_per_s}
    figures |= {f"{name}_requests": row and row.counts[name] for name in _COUNTS}
    percentiles = {"ttft": row.ttft_s, "ttft_without_kv": row.ttft_without_kv_s} if row else {}
    figures |= {f"{name}_p{percent}_s": row and percentiles[name][percent] for percent, name in _TTFTS}
    figures |= {
        "slo_s": row and row.slo_s,
        "deadline_overruns": row and row.deadline_overruns,
        "overrun_ns": row and row.overrun_ns,
        "pool_gpus": row and row.pool_gpus,
        "tokens_per_gpu_hour": row and row.tokens_per_gpu_hour,
        "pool_equivalent_gpus": row and row.pool_equivalent,
        "pool_equivalent_at_80_percent_gpus": row and row.pool_equivalent_at_80,
    }
    return {f"prefill_{name}": value for name, value in figures.items()}


def prefill_records(rows: Sequence[PrefillRow]) -> list[dict[str, Any]]:
    """Return one record per row, with the swept values in ``swept``."""
    return [{"swept": dict(row.values), "run": row.run, "variant": row.variant, **prefill_figures(row)} for row in rows]


def impact_records(impacts: Sequence[Impact]) -> list[dict[str, Any]]:
    """Return one record per impact, with the swept values in ``swept``."""
    records = []
    for each in impacts:
        low, high = each.interval or (None, None)
        records.append(
            {
                "swept": dict(each.values),
                "run": each.run,
                "variant": each.variant,
                "without": each.without,
                "pairs": each.pairs,
                "iteration_time_ratio": each.ratio,
                "iteration_time_ratio_low": low,
                "iteration_time_ratio_high": high,
                "verdict": each.verdict,
                "simulated": each.simulated,
            }
        )
    return records
