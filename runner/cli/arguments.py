"""Arguments that several commands share."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from wanbed.runner.cli.exit_status import fail
from wanbed.runner.experiments.shipped_experiments import instead_of, shipped_experiment, shipped_experiments
from wanbed.runner.runs.faults import BAD_INPUT

STANDARD_OUTPUT = Path("-")
"""The path that means standard output instead of a file."""


def path_of(option: str) -> Callable[[str], Path]:
    """Return the parser of an option's path, which refuses an empty one: to ``Path`` that is the current folder."""

    def parse(text: str) -> Path:
        if not str(text).strip():
            fail(f"{option} '': an empty path names no file and no folder: give one, or leave {option} out", BAD_INPUT)
        return Path(text)

    return parse


def experiment_file(text: str) -> Path:
    """Return the file of an experiment given by path, or by the name of a shipped one where no file has that name."""
    if not text.strip():
        fail("FILE '': an empty path names no file: give one, or a name that wanbed examples lists", BAD_INPUT)
    path = Path(text)
    if path.name != text or path.suffix or os.path.isfile(path):
        return path
    shipped = shipped_experiment(text)
    if shipped is None and not os.path.lexists(path):
        fail(f"{text}: no file here and no shipped experiment has this name: {instead_of(text)}", BAD_INPUT)
    return path if shipped is None else shipped.path


def _files_and_names() -> list[str]:
    """Return what may stand for FILE; where none of it fits what is typed, shells complete any path."""
    files = [path.name for suffix in ("yaml", "yml") for path in Path().glob(f"*.{suffix}")]
    return [*sorted(files), *(each.name for each in shipped_experiments())]


ExperimentFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="The experiment's file, or the name of a shipped one (wanbed examples).",
        parser=experiment_file,
        autocompletion=_files_and_names,
    ),
]

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Replace one value of the file; may be given several times."),
]

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output, all else on standard error.")
]

SubstrateName = Annotated[
    str,
    typer.Option(
        "--substrate", help="What carries the network: auto, kernel, guest or relay. `wanbed doctor` explains."
    ),
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


DryRun = Annotated[bool, typer.Option("--dry-run", help="Check the file, list the trials and the links; run none.")]

RunsFolder = Annotated[
    Path, typer.Option("--runs", metavar="DIR", parser=path_of("--runs"), help="Where run folders go.")
]

Jobs = Annotated[
    int | None,
    typer.Option("--jobs", min=1, metavar="N", help="Trials to simulate at a time (default: one for each core)."),
]

RackAddress = Annotated[
    str | None,
    typer.Option("--rack", metavar="HOST:PORT", help="Use the machines of the Ray cluster whose head listens there."),
]

HostsPerMachine = Annotated[
    int | None,
    typer.Option("--hosts-per-machine", min=1, metavar="N", help="The most hosts on each machine of a rack: 1."),
]

OverlayName = Annotated[
    str | None,
    typer.Option("--overlay", help="What joins machines of a rack: vxlan (default) or wireguard (encrypted)."),
]

Queue = Annotated[
    bool, typer.Option("--queue", help="Wait for machines of the rack that another run uses, instead of ending.")
]
