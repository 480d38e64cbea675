"""Write the report's tables as text: CSV for spreadsheets, JSON for scripts, Markdown for people."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from wanbed.results.comparison.differences import manifest_differences
from wanbed.results.metrics import IDLE_CAUSES
from wanbed.results.reading.headline import HeadlineRow
from wanbed.results.reading.links import (
    ChangingLink,
    changing_links,
    changing_links_at,
    changing_links_text,
)
from wanbed.results.reading.prefill import prefill_figures, prefill_records
from wanbed.results.reading.run import Run
from wanbed.results.report.charts.gpu_time import PARTS, PROGRAM_IDLE_CAUSES, gpu_time_shares
from wanbed.results.report.contents import SECTIONS, own_tables, tables_of, warnings_of
from wanbed.results.report.headline_table import cost_figures, differing_table, headline_figures, headline_table
from wanbed.results.report.losses import final_figures, loss_records, loss_series
from wanbed.results.report.prefill import compared, impact_records, served
from wanbed.results.report.reported_runs import ReportedRuns, labelled
from wanbed.results.text import (
    json_text,
    markdown_text,
    visible,
)

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a text cell that starts with one of these for a formula."""

FORMATS = ("csv", "md", "json")


def table_text(runs: Sequence[Run], form: str, clocks: Sequence[Run | None] | None = None) -> str:
    """Return the tables of these runs in one of ``FORMATS``, ending with a line break.

    ``clocks`` has for each run the one of the same training whose clock times its losses, None for its own.

    - csv: one row per run, sweep point and variant. Swept values come first; figures are exact, with their unit in the
      column's name. A text that a spreadsheet would take for a formula gets an apostrophe before it. Without a
      finished trial it is an empty line.
    - json: the same rows, the outcomes of the requests, the impact of prefill on training, what was learnt, the records
      of each run's own tables under their names, the calibration, and the differences between the manifests.
    - md: the warnings of each run, the main table and, where there are any, those about losses, prefill, and each
      run's own tables.

    Each names the links that changed while training ran, if any did: in a column, an entry or a sentence.
    """
    reported = ReportedRuns.of(labelled(runs), clocks)
    if form == "md":
        return _markdown(reported)
    by_label, rows = reported.by_label, reported.headline
    records = _with_changing_links(_records(reported), rows, by_label)
    if form == "csv":
        return _csv(rows, records)
    more: dict[str, Any] = {
        "prefill": prefill_records(reported.rows(served)),
        "impact": impact_records(reported.rows(compared)),
    }
    if losses := reported.rows(loss_series):
        more["losses"] = loss_records(losses)
    for own in reported.runs:
        for table in own_tables(own):
            if table.records:
                more.setdefault(table.name, []).extend({"run": own.label, **record} for record in table.records)
    if changing := _changing_links(by_label):
        more["changing_links"] = changing
    return _json(by_label, records, more)


def _markdown(reported: ReportedRuns) -> str:
    named = [(own.label if reported.several else "", own) for own in reported.runs]
    of_sections = [table for section in SECTIONS for table in (*section.tables, *section.tables_below)]
    tables = [
        ("", headline_table(reported)),
        *((label, differing_table(own.run)) for label, own in named),
        *(("", table) for table in tables_of(of_sections, reported)),
        *((label, table) for label, own in named for table in own_tables(own)),
    ]
    warned = [f"{label}: {text}" if label else text for label, own in named for text in warnings_of(own)]
    written = "".join(f"\n**Read this first.** {markdown_text(text)}\n" for text in warned)
    written = (written + "".join(table.markdown(label) for label, table in tables if table is not None)).lstrip("\n")
    changes = [(label, changing_links_text(own.run.manifest)) for label, own in named]
    return written + "".join(
        f"\n{markdown_text(f'{label}: {text}' if label else text)}\n" for label, text in changes if text is not None
    )


def _records(reported: ReportedRuns) -> list[dict[str, Any]]:
    # The last loss is the same over any clock.
    learnt = {(each.run, each.trials[0].id.point, each.variant): each for each in reported.rows(loss_series)}
    prefill_of_row = {(each.run, each.point, each.variant): each for each in reported.rows(served)}
    shares = [each for own in reported.runs for each in gpu_time_shares(own.run, own.label)]
    shares_of = {(each.run, each.point, each.variant): each for each in shares}
    # Leave out the columns that only programs have if there are none.
    of_programs = any(part in each.parts_ns for each in shares for part in PROGRAM_IDLE_CAUSES)
    parts = (*PARTS, *(PROGRAM_IDLE_CAUSES if of_programs else ()))
    # Leave out costs where no file has prices.
    priced = any(row.cost is not None for row in reported.headline)
    records = []
    for row in reported.headline:
        key = (row.run, row.point, row.variant)
        own = shares_of.get(key)
        fractions = {_fraction(part): own.share(part) if own and part in own.parts_ns else None for part in parts}
        # Leave out the prefill columns if all of them would be empty.
        of_prefill = prefill_figures(prefill_of_row.get(key)) if prefill_of_row else {}
        last = final_figures(learnt.get(key)) if learnt else {}
        figures = {**headline_figures(row), **(cost_figures(row) if priced else {})}
        records.append({"swept": dict(row.values), **figures, **fractions, **of_prefill, **last})
    return records


def _with_changing_links(
    records: list[dict[str, Any]], rows: Sequence[HeadlineRow], runs: Mapping[str, Run]
) -> list[dict[str, Any]]:
    """Return the records, each with the links that changed in its sweep point; as they are if none did anywhere."""
    found = [[link.text for link in changing_links_at(runs[row.run].manifest, row.point)] for row in rows]
    if not any(found):
        return records
    return [{**record, "changing_links": links} for record, links in zip(records, found, strict=True)]


def _changing_links(runs: Mapping[str, Run]) -> list[dict[str, Any]]:
    return [
        {"run": label, "points": points, **link.document()}
        for label, run in runs.items()
        for link, points in _points_by_link(run.manifest).items()
    ]


def _points_by_link(manifest: Mapping[str, Any]) -> dict[ChangingLink, list[int]]:
    """Return the sweep points in which each link changes."""
    points = range(len(manifest.get("sweep_points") or ()))
    return {
        link: [point for point in points if link in changing_links_at(manifest, point)]
        for link in changing_links(manifest)
    }


def _fraction(part: str) -> str:
    """Return the name of the column of a part's share of the GPU time."""
    return f"{'idle_' if part in (*IDLE_CAUSES, *PROGRAM_IDLE_CAUSES) else ''}{part}_fraction"


def _csv(rows: Sequence[HeadlineRow], records: Sequence[Mapping[str, Any]]) -> str:
    swept = list(dict.fromkeys(path for row in rows for path in row.values))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    columns = [name for record in records[:1] for name in record if name != "swept"]
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


def _json(runs: Mapping[str, Run], records: Sequence[Mapping[str, Any]], more: Mapping[str, Any]) -> str:
    calibration = [
        {"run": label, **row}
        for label, run in runs.items()
        for row in json.loads(run.calibration.to_json(orient="records"))
    ]
    differences = [
        {"field": each.path, "values": dict(zip(runs, each.values, strict=True)), "derived": each.derived}
        for each in manifest_differences([run.manifest for run in runs.values()])
    ]
    document = {
        "runs": [
            {"run": label, "path": str(run.path), "complete": run.complete, "simulated": run.simulated}
            for label, run in runs.items()
        ],
        "headline": records,
        **more,
        "calibration": calibration,
        "differences": differences,
    }
    return json_text(document) + "\n"
