"""``wanbed report``: write the results of runs as one self-contained page, as tables, and as figures."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from wanbed.ground.errors import InputError
from wanbed.ground.files import PARTIAL, check_place, write_whole
from wanbed.runner.cli.arguments import STANDARD_OUTPUT, AsJson, path_of
from wanbed.runner.cli.exit_status import fail, one_line_errors, reporting
from wanbed.runner.runs.faults import NO_DATA

FIGURES = "Figures for a paper"
"""The heading of the options that concern figures, in the command's help."""


class ReportFormat(StrEnum):
    """The format in which a report is written."""

    HTML = "html"
    CSV = "csv"
    MD = "md"
    JSON = "json"


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs; several are overlaid.")],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            parser=path_of("--output"),
            help="Where to write it, in a folder that is there (default: report.html in the first run; tables are "
            "printed, as with -).",
        ),
    ] = None,
    form: Annotated[
        ReportFormat,
        typer.Option(
            "--format",
            help="The page, or only its tables: csv and json with exact figures, md for people. In csv, names that a "
            "spreadsheet would take for a formula have an apostrophe before them.",
        ),
    ] = ReportFormat.HTML,
    clock: Annotated[
        list[Path] | None,
        typer.Option(
            "--clock",
            metavar="RUN",
            help="Time losses by the run of the same training there, such as a simulation; one for all runs, or one "
            "for each.",
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            "--figures",
            metavar="DIR",
            parser=path_of("--figures"),
            rich_help_panel=FIGURES,
            help="Also write every figure there as PDF and PNG fit for a paper; DIR is made, the folder above it not.",
        ),
    ] = None,
    charts: Annotated[
        list[str] | None,
        typer.Option("--chart", metavar="NAME", rich_help_panel=FIGURES, help="Only this chart, as its file is named."),
    ] = None,
    points: Annotated[
        list[str] | None,
        typer.Option(
            "--point",
            metavar="N|PATH=VALUE",
            rich_help_panel=FIGURES,
            help="Only this sweep point; values of one path are alternatives, different paths must all hold.",
        ),
    ] = None,
    variants: Annotated[
        list[str] | None,
        typer.Option("--variant", metavar="NAME", rich_help_panel=FIGURES, help="Only this variant."),
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            metavar="NAME=TEXT",
            rich_help_panel=FIGURES,
            help="Write TEXT for a variant, run, datacenter, swept path or the text of an axis.",
        ),
    ] = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option(
            "--size",
            metavar="SIZE",
            rich_help_panel=FIGURES,
            help="column (3.4in), page (7in), a width like 85mm, or width and height like 3.3inx2in (default: column "
            "and page).",
        ),
    ] = None,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--figure-format", metavar="NAME", rich_help_panel=FIGURES, help="pdf, png or svg (default: pdf and png)."
        ),
    ] = None,
    font_pt: Annotated[
        float | None,
        typer.Option("--font-size", metavar="POINTS", rich_help_panel=FIGURES, help="Size of all text (default: 8)."),
    ] = None,
    logarithmic: Annotated[
        list[str] | None,
        typer.Option("--log", metavar="x|y", rich_help_panel=FIGURES, help="Make this axis logarithmic."),
    ] = None,
    limits: Annotated[
        list[str] | None,
        typer.Option(
            "--limits", metavar="AXIS=LOW:HIGH", rich_help_panel=FIGURES, help="Limits of x or y, as in y=0:2.5 or x=5:"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the report of one or several runs as one self-contained HTML file, or its tables, and figures of it.

    Options about figures may be given several times, and change nothing in the report itself.
    """
    from wanbed.results.comparison.comparison import load_clocks
    from wanbed.results.reading.run import load_run
    from wanbed.results.reading.selection import no_trials_text
    from wanbed.results.report.charts.figure_options import FigureOptions
    from wanbed.results.report.report import write_report
    from wanbed.results.report.text_formats import table_text

    with one_line_errors(), reporting(*runs):
        if form is ReportFormat.HTML and output == STANDARD_OUTPUT:
            raise InputError("--output -: only tables go to standard output, give the page a file, or a --format")
        printed = form is not ReportFormat.HTML and output in {None, STANDARD_OUTPUT}
        if printed and as_json:
            raise InputError(f"--json: standard output is for the {form} tables, give them an --output")
        of_figures = {
            "--chart": charts, "--point": points, "--variant": variants, "--label": labels, "--size": sizes,
            "--figure-format": formats, "--font-size": font_pt, "--log": logarithmic, "--limits": limits,
        }  # fmt: skip
        useless = [name for name, given in of_figures.items() if given] if figures is None else []
        if useless:
            raise InputError(f"{useless[0]}: it is about figures, give --figures DIR too")
        options = FigureOptions.parse(
            charts=charts, sizes=sizes, formats=formats, font_pt=font_pt, labels=labels, logarithmic=logarithmic,
            limits=limits,
        )  # fmt: skip
        loaded = [load_run(path, coded=True) for path in runs]
        for run in loaded:
            if run.summary.empty:
                fail(f"{run.path}: {no_trials_text(run.manifest)}", NO_DATA)
        clocks = load_clocks(clock or (), len(loaded))
        destination = output or runs[0] / "report.html"
        # All is checked and drawn before anything is written.
        _check_places(None if printed else destination, figures)
        pictures: dict[str, bytes] = {}
        if figures is not None:
            # matplotlib takes a second to load, and a page does without it.
            from wanbed.results.report.report_figures import draw_report_figures

            pictures = draw_report_figures(loaded, options, points or (), variants or (), clocks=clocks)
        with _written(destination, "--output"):
            if form is ReportFormat.HTML:
                write_report(loaded, destination, clocks)
            elif not printed:
                write_whole(destination, table_text(loaded, form, clocks))
        drawn: list[Path] = []
        if figures is not None:
            from wanbed.results.report.charts.paper import save_figures

            with _written(figures, "--figures"):
                drawn = save_figures(pictures, figures)
        if printed:
            print(table_text(loaded, form, clocks), end="")
        elif as_json:
            named = {"figures": [str(file) for file in drawn]} if figures is not None else {}
            print(json.dumps({"report": str(destination), **named}, indent=2))
        else:
            print(destination)


def _check_places(file: Path | None, folder: Path | None) -> None:
    """Raise InputError if the file cannot be written, or if the folder is none and cannot be made."""
    if file is not None:
        with _written(file, "--output"):
            check_place(file)
    if folder is not None and not folder.is_dir():
        with _written(folder, "--figures"):
            folder.mkdir()
            folder.rmdir()


@contextmanager
def _written(destination: Path, option: str) -> Iterator[None]:
    """Raise InputError, with the option that names the destination, if it cannot be written."""
    try:
        yield
    except OSError as fault:
        file = str(fault.filename or destination).removesuffix(PARTIAL)
        raise InputError(f"{file}: cannot be written ({fault.strerror}), give another {option}") from None
