"""Write the published files: report, claims, tables and figures of every part that has run, small enough for git."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from studies.paper.claims.claims import RECALLED_CAP_BPS, RECALLED_SINGLE_BPS, claims
from studies.paper.claims.claims_page import claims_page
from studies.paper.claims.speed_up import speed_ups
from studies.paper.goodput_chart import goodput_chart
from studies.paper.outcome import Outcomes, PartOutcome, outcomes_of
from studies.paper.part import PaperPart
from studies.paper.volume import Volume, volume_table
from wanbed.ground.files.atomic_write import write_whole
from wanbed.results.comparison.run_description import facts, warnings, what_was_run
from wanbed.results.reading.headline import HeadlineRow, by_point, headline
from wanbed.results.reading.run import Run
from wanbed.results.report.charts.chart import Chart
from wanbed.results.report.charts.colours import Styles
from wanbed.results.report.charts.paper import draw_figures, save_figures
from wanbed.results.report.page_templates import page_environment
from wanbed.results.report.report_charts import report_charts
from wanbed.results.report.reported_runs import ReportedRuns
from wanbed.results.report.tables import table_text
from wanbed.results.text import isolated, visible
from wanbed.runner.validation.agreement import Agreement, Compared, write_agreement
from wanbed.runner.validation.comparison import VariantComparison

TABLES, FIGURES = "tables", "figures"
REPORT, CLAIMS, VOLUMES = "report.html", "claims.md", "volumes.md"
TABLE_FORMS = ("csv", "md")
_TEMPLATE = "paper_report.html.j2"
_RECALLED_BPS = {
    "one connection": RECALLED_SINGLE_BPS,
    "many connections": dict.fromkeys(RECALLED_SINGLE_BPS, RECALLED_CAP_BPS),
}


@dataclass(frozen=True)
class PartResult:
    """A part's run, and the comparisons of its iteration times with simulated ones; () for a simulated run."""

    part: PaperPart
    run: Run
    comparisons: tuple[VariantComparison, ...]


@dataclass(frozen=True)
class _Section:
    """One part as the template shows it."""

    title: str
    run: str
    description: str
    warnings: Sequence[str]
    groups: Sequence[tuple[str, Sequence[HeadlineRow]]]
    charts: Sequence[Chart]
    styles: Styles
    simulated_s: dict[tuple[int, str], VariantComparison]
    facts: Sequence[tuple[str, str]]


def write_reference(
    folder: Path, results: Sequence[PartResult], volumes: Sequence[Volume], how: str, missing: Sequence[str]
) -> list[Path]:
    """Write all files into ``folder``, which is created. Return their paths, the report and the claims first.

    ``how`` describes the origin of the figures in a sentence or two. ``missing`` names the parts without a result.
    """
    for name in ("", TABLES, FIGURES):
        (folder / name).mkdir(parents=True, exist_ok=True)
    outcomes = [outcome for result in results for outcome in outcomes_of(result.part.name, result.run)]
    found = Outcomes(outcomes)
    all_claims, all_speed_ups = claims(found), speed_ups(found)
    files = []
    sections = []
    for result in results:
        charts = _charts(result, [outcome for outcome in outcomes if outcome.part == result.part.name])
        published = [
            replace(chart, name=f"{result.part.name}-{chart.name}")
            for chart in charts
            if chart.name in result.part.figures
        ]
        files += save_figures(draw_figures(published), folder / FIGURES)
        for form in TABLE_FORMS:
            files.append(folder / TABLES / f"{result.part.name}.{form}")
            write_whole(files[-1], table_text([result.run], form))
        sections.append(_section(result, charts))
    agreement = _agreement(results)
    if agreement is not None:
        files.append(write_agreement(folder, agreement))
    files.append(folder / VOLUMES)
    write_whole(files[-1], volume_table(volumes))
    write_whole(folder / CLAIMS, claims_page(all_claims, all_speed_ups, how))
    page = (
        page_environment(Path(__file__).parent)
        .get_template(_TEMPLATE)
        .render(
            how=how,
            missing=missing,
            claims=all_claims,
            speed_ups=[(title, list(own)) for title, own in groupby(all_speed_ups, attrgetter("headline"))],
            agreement=agreement,
            sections=sections,
        )
    )
    write_whole(folder / REPORT, isolated(visible(page)))
    return [folder / REPORT, folder / CLAIMS, *files]


def _agreement(results: Sequence[PartResult]) -> Agreement | None:
    compared = [
        Compared(result.part.name, result.run.path.resolve().name, result.comparisons)
        for result in results
        if result.comparisons
    ]
    return Agreement(tuple(compared)) if compared else None


def _charts(result: PartResult, outcomes: Sequence[PartOutcome]) -> list[Chart]:
    """Return the charts that the page shows for a part. Its name makes their internal references unique."""
    name, run = result.part.name, result.run
    of_report = report_charts(ReportedRuns.of({name: run}), Styles.of({name: run.variants})).all
    charts = filter(None, [*of_report, goodput_chart(outcomes, _RECALLED_BPS)])
    return [
        replace(
            chart,
            drawings=tuple(replace(drawing, salt=f"{name}-{drawing.salt}") for drawing in chart.drawings),
        )
        for chart in charts
        if chart.name in result.part.charts
    ]


def _section(result: PartResult, charts: Sequence[Chart]) -> _Section:
    run = result.run
    return _Section(
        title=result.part.title,
        run=run.path.resolve().name,
        description=what_was_run(run),
        warnings=warnings(run),
        groups=by_point(headline(run, result.part.name)),
        charts=charts,
        styles=Styles.of({result.part.name: run.variants}),
        simulated_s={(each.point, each.variant): each for each in result.comparisons},
        facts=facts(run),
    )
