"""Write the report: one self-contained HTML page about one run, or about several runs in common charts and tables."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wanbed.ground.files import write_whole
from wanbed.results.comparison.differences import (
    ManifestDifference,
    ReportedDifferences,
    overlay_warnings,
    reported_differences,
    trace_text,
)
from wanbed.results.comparison.run_description import RunDescription
from wanbed.results.reading.run import Run, run_name
from wanbed.results.report.charts.chart import Chart
from wanbed.results.report.charts.colours import Styles
from wanbed.results.report.contents import (
    CHARTS,
    SECTIONS,
    charts_of,
    own_charts,
    own_tables,
    tables_of,
    warnings_of,
)
from wanbed.results.report.headline_table import differing_table, headline_table
from wanbed.results.report.page_templates import page_environment
from wanbed.results.report.reported_runs import ReportedRun, ReportedRuns, labelled
from wanbed.results.report.section import Section
from wanbed.results.report.table import Table
from wanbed.results.text import isolated, visible

MAX_OPEN_ROWS = 100
"""The most rows of a table that is shown open. A longer one is folded, so that the charts are visible."""

MAX_DIFFERENCES = 200
"""The most differences between manifests that are listed; the rest are only counted."""

MAX_TRACE_CHARACTERS = 2000
"""The longest text of a trace that the page shows with the configuration."""

_TEMPLATE = "report.html.j2"


@dataclass(frozen=True)
class _ShownSection:
    """A section about all runs, as the template shows it: not at all without ``parts``."""

    title: str
    parts: Sequence[Table | Chart]
    warning: str


@dataclass(frozen=True)
class _RunSection:
    """One run's own section, as the template shows it."""

    label: str
    simulated: bool
    described: RunDescription
    warnings: Sequence[str]
    total_wan_bytes: int | None
    differing: Table | None
    charts: Sequence[Chart]
    tables: Sequence[Table]
    calibrated: bool
    configuration: str


def write_report(runs: Sequence[Path | Run], destination: Path, clocks: Sequence[Run | None] | None = None) -> None:
    """Write one self-contained HTML page about these runs; each is a folder, or a run that was read already.

    ``clocks`` has for each run the one of the same training whose clock times its losses, None for its own.

    Several runs share one table and one set of charts. A variant has the same colour everywhere, a run the same line
    style. Raise RunError, with one line as message, if a folder is no run or damaged.
    """
    reported = ReportedRuns.of(labelled(runs), clocks)
    by_label = reported.by_label
    styles = styles_of(by_label)
    no_differences = ReportedDifferences((), (), ())
    differences = reported_differences(list(by_label.values())) if reported.several else no_differences
    page = (
        page_environment()
        .get_template(_TEMPLATE)
        .render(
            title=", ".join(dict.fromkeys(run_name(run) for run in by_label.values())),
            labels=list(by_label),
            overlay_warnings=overlay_warnings(by_label) if reported.several else [],
            table=headline_table(reported),
            charts=charts_of(CHARTS, reported, styles),
            sections=[_shown(section, reported, styles) for section in SECTIONS],
            differences=_cut(differences.deciding),
            of_emulation=_cut(differences.of_emulation),
            derived_differences=_cut(differences.derived),
            runs=[_run_section(own, styles) for own in reported.runs],
            styles=styles,
            most_open_rows=MAX_OPEN_ROWS,
        )
    )
    write_whole(destination, isolated(visible(page)))


def styles_of(runs: Mapping[str, Run]) -> Styles:
    """Return the styles of all variants and runs of a report."""
    return Styles.of({label: run.variants for label, run in runs.items()})


def _cut(differences: Sequence[ManifestDifference]) -> tuple[Sequence[ManifestDifference], int]:
    """Return the differences to show, and the number of those left out."""
    return differences[:MAX_DIFFERENCES], len(differences[MAX_DIFFERENCES:])


def _shown(section: Section, reported: ReportedRuns, styles: Styles) -> _ShownSection:
    parts: list[Table | Chart] = [
        *tables_of(section.tables, reported),
        *charts_of(section.charts, reported, styles),
        *tables_of(section.tables_below, reported),
    ]
    return _ShownSection(section.title, parts, section.warning(reported))


def _run_section(own: ReportedRun, styles: Styles) -> _RunSection:
    run = own.run
    described = RunDescription.of(run)
    wan_bytes = run.summary["wan_bytes"].dropna()
    return _RunSection(
        label=own.label,
        simulated=run.simulated,
        described=described,
        warnings=warnings_of(own),
        total_wan_bytes=int(wan_bytes.sum()) if len(wan_bytes) else None,
        differing=differing_table(run),
        charts=own_charts(own, styles),
        tables=own_tables(own),
        calibrated=not run.calibration.empty,
        configuration=json.dumps(_configuration(run), indent=2, ensure_ascii=False, default=str),
    )


def _configuration(run: Run) -> dict[str, Any]:
    """Return the experiment's document, with what tells a long trace from others in place of its text."""
    document = dict(run.manifest.get("experiment") or {})
    if isinstance(document.get("traces"), Mapping):
        document["traces"] = {
            name: text if len(text) <= MAX_TRACE_CHARACTERS else trace_text(text)
            for name, text in document["traces"].items()
        }
    return document
