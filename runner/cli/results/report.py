"""``wanbed report``: write the results of runs as one self-contained page, as tables, and as figures."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ground.atomic_write import write_whole
from ground.strict_model import InputError
from results import load
from runner.cli.arguments import STANDARD_OUTPUT, AsJson
from runner.cli.exit_status import fail, one_line_errors
from runner.runs.faults import NO_DATA


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
    figures: Annotated[
        Path | None,
        typer.Option(
            "--figures",
            metavar="DIR",
            help="Also write every figure there as PDF and PNG fit for a paper; DIR is made, the folder above it not.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the report of one or several runs as one self-contained HTML file, or its tables."""
    # The drawing libraries take a second to load, so other commands do not import them.
    from results.report.report import write_report, write_report_figures  # noqa: PLC0415
    from results.report.tables import table_text  # noqa: PLC0415

    with one_line_errors():
        if form is ReportFormat.HTML and output == STANDARD_OUTPUT:
            raise InputError("--output -: only tables go to standard output, give the page a file, or a --format")
        printed = form is not ReportFormat.HTML and output in {None, STANDARD_OUTPUT}
        if printed and as_json:
            raise InputError(f"--json: standard output is for the {form} tables, give them an --output")
        loaded = [load(path) for path in runs]
        for run in loaded:
            if run.summary.empty:
                fail(f"{run.path}: no trial of this run has finished, continue it with wanbed run --resume", NO_DATA)
        destination = output or runs[0] / "report.html"
        drawn: list[Path] = []
        try:
            if form is ReportFormat.HTML:
                write_report(loaded, destination)
            elif not printed:
                write_whole(destination, table_text(loaded, form))
        except OSError as fault:
            raise InputError(f"{destination}: cannot be written ({fault.strerror}), give another --output") from None
        if figures is not None:
            try:
                drawn = write_report_figures(loaded, figures)
            except OSError as fault:
                raise InputError(
                    f"{fault.filename or figures}: cannot be written ({fault.strerror}), give another --figures"
                ) from None
        if printed:
            print(table_text(loaded, form), end="")
        elif as_json:
            named = {"figures": [str(file) for file in drawn]} if figures is not None else {}
            print(json.dumps({"report": str(destination), **named}, indent=2))
        else:
            print(destination)
