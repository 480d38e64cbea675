"""Arguments that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

STANDARD_OUTPUT = Path("-")
"""The path that a user gives for standard output in place of a file."""

ExperimentFile = Annotated[Path, typer.Argument(metavar="FILE", help="The experiment's file.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Replace one value of the file; may be given several times."),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="One JSON document on standard output, all else on standard error.")
]
SubstrateName = Annotated[
    str, typer.Option("--substrate", help="Where the qdiscs live: auto, kernel or guest. `wanbed doctor` explains.")
]
Clock = Annotated[
    str | None, typer.Option("--clock", metavar="NAME", help="real or virtual; short for --set clock=NAME.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the last unfinished run of this file.")]


def with_clock(overrides: list[str] | None, clock: str | None) -> list[str]:
    """Return the overrides with that of ``--clock``, which comes last."""
    return [*(overrides or []), *([] if clock is None else [f"clock={clock}"])]


def as_options(overrides: list[str]) -> list[str]:
    """Return the overrides as this program's own options, for a command that is started anew."""
    return [f"--set={override}" for override in overrides]


DryRun = Annotated[bool, typer.Option("--dry-run", help="Check the file and list the trials; run none.")]
RunsFolder = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Where run folders go.")]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", min=1, metavar="N", help="Trials to simulate at a time (default: one for each core)."),
]
