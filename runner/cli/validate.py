"""``wanbed validate``: compare the simulator with closed forms and with emulated runs."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from wanbed.ground.errors import InputError
from wanbed.ground.files import write_whole
from wanbed.runner.cli.arguments import AsJson, RunsFolder, path_of
from wanbed.runner.cli.exit_status import fail, one_line_errors
from wanbed.runner.runs.faults import NO_DATA, OUTSIDE_TOLERANCE

PICTURE = ".png"


def validate(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="Folder of an emulated run, to simulate its trials too.")
    ] = None,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            parser=path_of("--output"),
            help="Write the page here, and its picture beside it (default: print the page).",
        ),
    ] = None,
    paper: Annotated[
        Path | None,
        typer.Option(
            "--paper",
            metavar="DIR",
            parser=path_of("--paper"),
            help="The output folder of make paper, to report how far virtual time agrees with simulations.",
        ),
    ] = None,
    random: Annotated[
        int | None,
        typer.Option("--random", metavar="N", help="Draw N experiments, run each in virtual time and simulate it."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="S", help="Which experiments are drawn (default: 1).")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the random experiments that have finished in --runs.")
    ] = False,
    drawn: Annotated[
        Path | None,
        typer.Option(
            "--drawn",
            metavar="DIR",
            parser=path_of("--drawn"),
            help="Store the results of --random here; without --random, read them from here. Causes of errors are read "
            "from explanations.yaml here.",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, metavar="N", help="Guests to run at a time (default: one a core, 2 at most)."),
    ] = None,
    runs: RunsFolder = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Compare the simulator with golden values, closed forms and, with RUN, the iteration times of an emulated run.

    With --random N it is also compared with N random experiments in virtual time. They cover what a file can combine,
    with one variant and a few seconds each.

    Exit status 1 if a value is not exact, an iteration time is more than 5 % off (for random experiments: more than one
    in twenty of them), or the median error is above 3 % (2 % in virtual time). Exit status 5 if --random finds no
    kernel for virtual time.
    """
    with one_line_errors():
        from wanbed.results import load
        from wanbed.results.reading.selection import no_trials_text
        from wanbed.runner.cli.validate_random import RandomOptions, random_section
        from wanbed.runner.simulator.variant_simulation import simulate_variant
        from wanbed.runner.validation.agreement import read_agreement
        from wanbed.runner.validation.page import document, page
        from wanbed.runner.validation.picture import draw_picture
        from wanbed.runner.validation.validation import validate_simulator

        options = RandomOptions(random, seed, resume, jobs, drawn, runs)
        if output is not None:
            _check_output(output)
        loaded = None if run is None else load(run)
        if loaded is not None and loaded.summary.empty:
            fail(f"{run}: {no_trials_text(loaded.manifest)}", NO_DATA)
        agreement = None if paper is None else read_agreement(paper)
        validation = validate_simulator(loaded, simulate_variant)
        section = random_section(options, simulate_variant)
        if output is not None:
            picture = output.with_suffix(PICTURE) if validation.comparisons else None
            try:
                if picture is not None:
                    draw_picture(validation.comparisons, picture)
                write_whole(output, page(validation, loaded, picture.name if picture else None, agreement, section))
            except OSError as fault:
                raise InputError(
                    f"{fault.filename or output}: cannot be written ({fault.strerror}), give another --output"
                ) from None
        if as_json:
            print(
                json.dumps(
                    {"page": str(output) if output else None, **document(validation, agreement, section)}, indent=2
                )
            )
        else:
            print(output if output else page(validation, loaded, None, agreement, section))
        held = [each for each in (validation, agreement, section) if each is not None]
        failures = [failure for each in held for failure in each.failures]
        for failure in failures:
            print(f"wanbed: {failure}", file=sys.stderr)
    if failures:
        raise typer.Exit(OUTSIDE_TOLERANCE)


def _check_output(output: Path) -> None:
    """Raise InputError, before anything is simulated, if the page cannot be written to that file."""
    if output.suffix == PICTURE:
        raise InputError(f"--output: {output}: the picture goes there, give a name for the page, like validation.md")
    if output.is_dir() or not output.parent.is_dir():
        raise InputError(f"--output: {output}: no page can be written there, give a file in a folder that exists")
