"""Arguments that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

STANDARD_OUTPUT = Path("-")
"""The path that means standard output instead of a file."""

ExperimentFile = Annotated[Path, typer.Argument(metavar="FILE", help="The experiment's file.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Replace one value of the file; may be given several times."),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output, all else on standard error.")
]
SubstrateName = Annotated[
    str, typer.Option("--substrate", help="Where the qdiscs live: auto, kernel or guest. `wanbed doctor` explains.")
]
Clock = Annotated[
    str | None, typer.Option("--clock", metavar="NAME", help="real or virtual; short for --set clock=NAME.")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the last unfinished run of this file; start one if there is none.")
]


def with_clock(overrides: list[str] | None, clock: str | None) -> list[str]:
    """Return the overrides followed by that of ``--clock``."""
    return [*(overrides or []), *([] if clock is None else [f"clock={clock}"])]


def as_options(overrides: list[str]) -> list[str]:
    """Return the overrides as command-line options, to start another wanbed command."""
    return [f"--set={override}" for override in overrides]


DryRun = Annotated[bool, typer.Option("--dry-run", help="Check the file and list the trials; run none.")]
RunsFolder = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Where run folders go.")]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", min=1, metavar="N", help="Trials to simulate at a time (default: one for each core)."),
]
