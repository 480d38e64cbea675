"""Draw the charts of a report as figures for a paper."""

from collections.abc import Sequence
from pathlib import Path

from wanbed.results.reading.run import Run
from wanbed.results.report.charts.figure_options import FigureOptions
from wanbed.results.report.charts.paper import draw_figures, save_figures
from wanbed.results.report.contents import every_chart
from wanbed.results.report.report import styles_of
from wanbed.results.report.reported_runs import ReportedRuns, chosen_trials, labelled


def write_report_figures(
    runs: Sequence[Path | Run],
    folder: Path,
    options: FigureOptions | None = None,
    points: Sequence[str] = (),
    variants: Sequence[str] = (),
) -> list[Path]:
    """Write figures of these runs' report to a folder, as ``draw_report_figures`` draws them, and return the files."""
    return save_figures(draw_report_figures(runs, options, points, variants), folder)


def draw_report_figures(
    runs: Sequence[Path | Run],
    options: FigureOptions | None = None,
    points: Sequence[str] = (),
    variants: Sequence[str] = (),
    *,
    clocks: Sequence[Run | None] | None = None,
) -> dict[str, bytes]:
    """Return the figures' files of runs' report by name, with ``wanbed.results.report.charts.paper.draw_figures``.

    ``points`` and ``variants`` choose what they show, all if empty; a variant looks as it does in the whole report.
    ``clocks`` as for ``write_report``. Raise NoSuchTrialError if there is nothing such.
    """
    everything = labelled(runs)
    chosen = chosen_trials(everything, points, variants)
    clock_of = dict(zip(everything, clocks or [None] * len(everything), strict=True))
    reported = ReportedRuns.of(chosen, [clock_of[label] for label in chosen])
    return draw_figures(every_chart(reported, styles_of(everything)), options)
