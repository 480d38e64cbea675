"""Write the published files: report, claims, tables and figures of every part that has run, small enough for git."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from matplotlib.figure import Figure

from studies.paper.claims import RECALLED_CAP_BPS, RECALLED_SINGLE_BPS, claims, claims_page, speed_ups
from studies.paper.outcome import Outcomes, PartOutcome, outcomes_of
from studies.paper.part import GOODPUT, PaperPart, Volume, volume_table
from wanbed.ground.files import write_whole
from wanbed.results.comparison.run_description import RunDescription, warnings
from wanbed.results.reading.headline import HeadlineRow, by_point, headline
from wanbed.results.reading.run import Run
from wanbed.results.reading.stored_trial import LATENCY_PATH
from wanbed.results.report.charts.chart import Chart, Drawing, LegendEntry, PicturePlace
from wanbed.results.report.charts.colours import GREY, Style, Styles, variant_styles
from wanbed.results.report.charts.paper import draw_figures, save_figures
from wanbed.results.report.charts.swept_points import latency_ms
from wanbed.results.report.contents import every_chart
from wanbed.results.report.page_templates import page_environment
from wanbed.results.report.reported_runs import ReportedRuns
from wanbed.results.report.text_formats import table_text
from wanbed.results.text import isolated, list_text, rate_text, visible
from wanbed.runner.validation.agreement import Agreement, Compared, write_agreement
from wanbed.runner.validation.comparison import VariantComparison

RECALLED = "recalled of the paper"

_RECALLED_STYLE = Style(GREY, "D", "", filled=False)


def goodput_chart(outcomes: Sequence[PartOutcome], recalled_bps: Mapping[str, Mapping[str, float]]) -> Chart | None:
    """Return the chart of every variant's steady goodput by swept latency, None if nothing was measured.

    ``recalled_bps`` holds the paper's recalled goodput by variant and latency.
    """
    measured: dict[str, dict[float, float]] = {}
    for each in outcomes:
        at_ms = latency_ms({LATENCY_PATH: each.latency})
        if at_ms is not None and each.steady_goodput_bps is not None:
            measured.setdefault(each.variant, {})[at_ms] = each.steady_goodput_bps
    if not measured:
        return None
    styles = variant_styles(list(measured))
    known = [
        (latency_ms({LATENCY_PATH: latency}) or 0.0, rate_bps)
        for variant, of_variant in recalled_bps.items()
        if variant in measured
        for latency, rate_bps in of_variant.items()
    ]

    def paint(figure: Figure, layout: PicturePlace) -> float:
        axis = figure.subplots()
        for variant, by_latency in measured.items():
            style = styles[variant]
            axis.plot(
                list(by_latency), [rate_bps / 1e9 for rate_bps in by_latency.values()], color=style.colour,
                marker=style.marker, markersize=9 * layout.scale, linewidth=3 * layout.scale, clip_on=False,
            )  # fmt: skip
        axis.plot(
            [at_ms for at_ms, _ in known], [rate_bps / 1e9 for _, rate_bps in known], linestyle="none",
            color=_RECALLED_STYLE.colour, marker=_RECALLED_STYLE.marker, markersize=7 * layout.scale,
            markerfacecolor="none", clip_on=False,
        )  # fmt: skip
        axis.set_xlim(left=0)
        axis.set_ylim(bottom=0)
        axis.grid(axis="y")
        axis.set_xticks(sorted({at_ms for by_latency in measured.values() for at_ms in by_latency}))
        axis.set_xlabel("one-way WAN latency (ms)")
        axis.set_ylabel("goodput (Gbit/s)")
        return 240 if layout.narrow else 300

    legend = [LegendEntry(variant, styles[variant]) for variant in measured]
    if known:
        legend.append(LegendEntry(RECALLED, _RECALLED_STYLE))
    reading = " ".join(
        f"{variant[0].upper()}{variant[1:]}: "
        f"{list_text([f'{rate_text(rate_bps)} at {at_ms:g} ms' for at_ms, rate_bps in by_latency.items()])}."
        for variant, by_latency in measured.items()
    )
    title = "Goodput between two hosts against WAN latency"
    return Chart(GOODPUT, title, tuple(legend), (Drawing(f"{title}. {reading}", "goodput", paint),), reading)


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
    described: RunDescription
    warnings: Sequence[str]
    groups: Sequence[tuple[str, Sequence[HeadlineRow]]]
    charts: Sequence[Chart]
    styles: Styles
    simulated_s: dict[tuple[int, str], VariantComparison]


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
    of_report = every_chart(ReportedRuns.of({name: run}), Styles.of({name: run.variants}))
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
        described=RunDescription.of(run),
        warnings=warnings(run),
        groups=by_point(headline(run, result.part.name)),
        charts=charts,
        styles=Styles.of({result.part.name: run.variants}),
        simulated_s={(each.point, each.variant): each for each in result.comparisons},
    )
