"""``wanbed trace``: write the activity of every GPU, link and connection for Perfetto, or a trial for Chakra."""

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from wanbed.ground.errors import InputError
from wanbed.runner.cli.arguments import STANDARD_OUTPUT, AsJson, path_of
from wanbed.runner.cli.exit_status import fail, one_line_errors
from wanbed.runner.runs.faults import NO_DATA

TRACE_FILE = "trace.json.gz"

CHAKRA_FOLDER = "chakra"


class TraceFormat(StrEnum):
    """The formats of traces."""

    PERFETTO = "perfetto"
    CHAKRA = "chakra"


def trace(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="PATH",
            parser=path_of("--output"),
            help=f"Where to write it: a file (default: {TRACE_FILE} in the run), for chakra a folder (default: "
            f"{CHAKRA_FOLDER} in the run).",
        ),
    ] = None,
    *,
    trace_format: Annotated[
        TraceFormat,
        typer.Option(
            "--format",
            help="perfetto shows the run; chakra is one iteration of one trial as an execution trace, which simulators "
            "and compute.trace read.",
        ),
    ] = TraceFormat.PERFETTO,
    points: Annotated[
        list[str] | None,
        typer.Option(
            "--point",
            metavar="N|PATH=VALUE",
            help="Only this sweep point; values of one path are alternatives, different paths must all hold.",
        ),
    ] = None,
    variant: Annotated[str | None, typer.Option("--variant", metavar="NAME", help="Only this variant.")] = None,
    repeat: Annotated[int | None, typer.Option("--repeat", metavar="K", help="Only this repetition, from 0.")] = None,
    iteration: Annotated[
        int | None, typer.Option("--iteration", metavar="I", help="Only this iteration of each trial, from 0.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a trace of the run, all trials one after the other unless chosen, for ui.perfetto.dev to open."""
    # Imported here to keep other commands fast.
    from wanbed.results.chakra.export import write_chakra_trace
    from wanbed.results.perfetto.trace_file import write_trace
    from wanbed.results.reading.selection import NoTrialsError, Selection

    write, name = (
        (write_trace, TRACE_FILE) if trace_format is TraceFormat.PERFETTO else (write_chakra_trace, CHAKRA_FOLDER)
    )

    with one_line_errors():
        if output == STANDARD_OUTPUT:
            raise InputError("--output -: a trace does not go to standard output, give a file")
        destination = output or run / name
        try:
            counts = write(run, destination, Selection(points or (), variant, repeat, iteration))
        except NoTrialsError as fault:
            fail(str(fault), NO_DATA)
        except OSError as fault:
            raise InputError(f"{destination}: cannot be written ({fault.strerror}), give another --output") from None
        print(json.dumps({"trace": str(destination), **asdict(counts)}, indent=2) if as_json else destination)
