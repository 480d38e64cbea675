"""Write the report's tables as text: CSV for spreadsheets, JSON for scripts, Markdown for people."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from wanbed.results.comparison.manifest_differences import manifest_differences
from wanbed.results.metrics import IDLE_CAUSES
from wanbed.results.reading.changing_links import (
    ChangingLink,
    changing_links,
    changing_links_at,
    changing_links_text,
)
from wanbed.results.reading.run import Run
from wanbed.results.reading.run_labels import run_labels
from wanbed.results.reading.summaries.headline import (
    HeadlineRow,
    headline,
)
from wanbed.results.report.gpu_time_shares import PARTS, PROGRAM_IDLE_CAUSES, GpuTimeShares, gpu_time_shares
from wanbed.results.report.headline_table import differing_table, headline_table
from wanbed.results.report.losses.loss_series import LossSeries, loss_series
from wanbed.results.report.losses.loss_table import final_figures, loss_records, loss_table
from wanbed.results.report.prefill.prefill_service import PrefillRow
from wanbed.results.report.prefill.prefill_tables import (
    impact_records,
    impact_table,
    prefill_figures,
    prefill_of,
    prefill_records,
    prefill_tables,
)
from wanbed.results.report.run_tables import run_tables
from wanbed.results.text.json_text import json_text
from wanbed.results.text.markdown_text import markdown_text
from wanbed.results.text.number_text import (
    visible,
)

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a text cell that starts with one of these for a formula."""

FORMATS = ("csv", "md", "json")


def table_text(runs: Sequence[Run], form: str, clocks: Sequence[Run | None] | None = None) -> str:
    """Return the tables of these runs in one of ``FORMATS``, ending with a line break.

    ``clocks`` has for each run the one of the same training whose clock times its losses, None for its own.

    - csv: one row per run, sweep point and variant. Swept values come first; figures are exact, with their unit in the
      column's name. A text that a spreadsheet would take for a formula gets an apostrophe before it.
    - json: the same rows, the outcomes of the requests, the impact of prefill on training, what was learnt, the records
      of each table of ``run_tables`` under its name, the calibration, and the differences between the manifests.
    - md: the main table and, where there are any, those about losses, prefill, and all of ``run_tables``.

    Each names the links that changed while training ran, if any did: in a column, an entry or a sentence.
    """
    labels = run_labels(runs)
    rows = [row for run, label in zip(runs, labels, strict=True) for row in headline(run, label)]
    prefill, impacts = prefill_of(dict(zip(labels, runs, strict=True)))
    losses = loss_series(dict(zip(labels, runs, strict=True)), clocks)
    shares = [each for run, label in zip(runs, labels, strict=True) for each in gpu_time_shares(run, label)]
    if form == "md":
        named = list(zip(runs, labels if len(runs) > 1 else [""], strict=True))
        own = [table.markdown(label) for run, label in named for table in run_tables(run)]
        differing = [table.markdown(label) for run, label in named if (table := differing_table(run)) is not None]
        shared = [loss_table(losses), *prefill_tables(prefill, shares), impact_table(impacts)]
        main = headline_table(rows)
        written = [
            "" if main is None else main.markdown(),
            *differing,
            *(table.markdown() for table in shared if table is not None),
            *own,
        ]
        return "".join(written).lstrip("\n") + _changes_markdown(runs, labels)
    records = _with_changing_links(_records(rows, shares, prefill, losses), rows, dict(zip(labels, runs, strict=True)))
    if form == "csv":
        return _csv(rows, records)
    more: dict[str, Any] = {"prefill": prefill_records(prefill), "impact": impact_records(impacts)}
    if losses:
        more["losses"] = loss_records(losses)
    for run, label in zip(runs, labels, strict=True):
        for table in run_tables(run):
            if table.records:
                more.setdefault(table.name, []).extend({"run": label, **record} for record in table.records)
    if changing := _changing_links(runs, labels):
        more["changing_links"] = changing
    return _json(runs, labels, records, more)


def _records(
    rows: Sequence[HeadlineRow],
    shares: Sequence[GpuTimeShares],
    prefill: Sequence[PrefillRow],
    losses: Sequence[LossSeries],
) -> list[dict[str, Any]]:
    # The last loss is the same over any clock.
    learnt = {(each.run, each.trials[0].id.point, each.variant): each for each in losses}
    prefill_of_row = {(each.run, each.point, each.variant): each for each in prefill}
    shares_of = {(each.run, each.point, each.variant): each for each in shares}
    # Leave out the columns that only programs have if there are none.
    of_programs = any(part in each.parts_ns for each in shares for part in PROGRAM_IDLE_CAUSES)
    parts = (*PARTS, *(PROGRAM_IDLE_CAUSES if of_programs else ()))
    records = []
    for row in rows:
        low_s, high_s = row.interval_s or (None, None)
        figures = {
            "run": row.run,
            "variant": row.variant,
            "repeats": row.repeats,
            "iterations": row.iterations,
            "iteration_time_s": row.iteration_time_s,
            "iteration_time_low_s": low_s,
            "iteration_time_high_s": high_s,
            "slowest_replica_time_s": row.slowest_replica_s,
            "bound_s": row.bound_s,
            "bound_part": row.bound_part,
            "over_bound_ratio": row.over_bound,
            "makespan_s": row.makespan_s,
            "worst_iteration_s": None if row.disturbed is None else row.disturbed.worst_s,
            "lost_fraction": None if row.disturbed is None else row.disturbed.lost,
            "fastest_repeat_s": row.fastest_s,
            "slowest_repeat_s": row.slowest_s,
            "speed_up_ratio": row.speed_up,
            "gpu_utilization_fraction": row.gpu_utilization,
            "gpu_utilization_with_prefill_fraction": row.gpu_utilization_with_prefill,
            "wan_bytes": _count(row.wan_bytes),
            "wan_goodput_bps": row.wan_goodput_bps,
            "tokens_per_s": row.tokens_per_s,
            "calibrated": row.calibrated,
            "saturated": bool(row.saturation.saturated),
            "saturated_repeats": row.saturation.saturated,
            "cores_saturated_fraction": row.saturation.worst.cores_saturated,
            "network_core_busy_fraction": row.saturation.worst.network_core_busy,
            "simulated": row.simulated,
            "not_modelled": list(row.not_modelled),
            "known_misses": [each.name for each in row.known_misses],
        }
        own = shares_of.get((row.run, row.point, row.variant))
        fractions = {_fraction(part): own.share(part) if own and part in own.parts_ns else None for part in parts}
        # Leave out the prefill columns if all of them would be empty.
        served = prefill_figures(prefill_of_row.get((row.run, row.point, row.variant))) if prefill else {}
        last = final_figures(learnt.get((row.run, row.point, row.variant))) if losses else {}
        records.append({"swept": dict(row.values), **figures, **fractions, **served, **last})
    return records


def _with_changing_links(
    records: list[dict[str, Any]], rows: Sequence[HeadlineRow], runs: Mapping[str, Run]
) -> list[dict[str, Any]]:
    """Return the records, each with the links that changed in its sweep point; as they are if none did anywhere."""
    found = [[link.text for link in changing_links_at(runs[row.run].manifest, row.point)] for row in rows]
    if not any(found):
        return records
    return [{**record, "changing_links": links} for record, links in zip(records, found, strict=True)]


def _changing_links(runs: Sequence[Run], labels: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"run": label, "points": points, **link.document()}
        for run, label in zip(runs, labels, strict=True)
        for link, points in _points_by_link(run.manifest).items()
    ]


def _points_by_link(manifest: Mapping[str, Any]) -> dict[ChangingLink, list[int]]:
    """Return the sweep points in which each link changes."""
    points = range(len(manifest.get("sweep_points") or ()))
    return {
        link: [point for point in points if link in changing_links_at(manifest, point)]
        for link in changing_links(manifest)
    }


def _changes_markdown(runs: Sequence[Run], labels: Sequence[str]) -> str:
    texts = [(label, changing_links_text(run.manifest)) for run, label in zip(runs, labels, strict=True)]
    several = len(runs) > 1
    return "".join(
        f"\n{markdown_text(f'{label}: {text}' if several else text)}\n" for label, text in texts if text is not None
    )


def _fraction(part: str) -> str:
    """Return the name of the column of a part's share of the GPU time."""
    return f"{'idle_' if part in (*IDLE_CAUSES, *PROGRAM_IDLE_CAUSES) else ''}{part}_fraction"


def _count(value: float | None) -> float | int | None:
    """Return a median of counts as an integer, unless it lies between two counts."""
    return int(value) if value is not None and value.is_integer() else value


def _csv(rows: Sequence[HeadlineRow], records: Sequence[Mapping[str, Any]]) -> str:
    swept = list(dict.fromkeys(path for row in rows for path in row.values))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    columns = [name for name in records[0] if name != "swept"]
    writer.writerow([*map(_plain, swept), *columns])
    for record in records:
        texts = [*(record["swept"].get(path, "") for path in swept), *(record[name] for name in columns)]
        writer.writerow(map(_plain, texts))
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return visible(f"'{value}" if value.startswith(_FORMULAS) else value)
    if isinstance(value, list):
        return _plain("; ".join(value))
    return "" if value is None else value


def _json(
    runs: Sequence[Run], labels: Sequence[str], records: Sequence[Mapping[str, Any]], more: Mapping[str, Any]
) -> str:
    calibration = [
        {"run": label, **row}
        for run, label in zip(runs, labels, strict=True)
        for row in json.loads(run.calibration.to_json(orient="records"))
    ]
    differences = [
        {"field": each.path, "values": dict(zip(labels, each.values, strict=True)), "derived": each.derived}
        for each in manifest_differences([run.manifest for run in runs])
    ]
    document = {
        "runs": [
            {"run": label, "path": str(run.path), "complete": run.complete, "simulated": run.simulated}
            for run, label in zip(runs, labels, strict=True)
        ],
        "headline": records,
        **more,
        "calibration": calibration,
        "differences": differences,
    }
    return json_text(document) + "\n"
