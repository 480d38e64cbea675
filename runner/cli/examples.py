"""``wanbed examples``: list the experiments that are shipped, and copy one of them to change it."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from wanbed.results.report.table import Column, Table
from wanbed.runner.cli.arguments import STANDARD_OUTPUT, AsJson, path_of
from wanbed.runner.cli.exit_status import fail, one_line_errors
from wanbed.runner.cli.terminal import print_table, terminal
from wanbed.runner.experiments.shipped_experiments import (
    ShippedExperiment,
    instead_of,
    shipped_experiment,
    shipped_experiments,
)
from wanbed.runner.runs.faults import BAD_INPUT

_HINT = (
    "wanbed run NAME and wanbed simulate NAME take a name as they take a file; a simulation needs no hosts, but has no "
    "programs. wanbed doctor says whether this user can make hosts. wanbed examples NAME copies one here, to change it."
)


def _names() -> list[tuple[str, str]]:
    return [(each.name, each.shows) for each in shipped_experiments()]


def examples(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Which to copy; without it, all are listed.", autocompletion=_names),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            parser=path_of("--output"),
            help="The copy (default: NAME.yaml here); - is standard output.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the shipped experiments, or copy one of them.

    Every command that takes a FILE takes such a name as well. A copy is for what you want to change. Where a program
    trains, it is copied too, with the versions of what it needs. No file that is there is written over.
    """
    with one_line_errors():
        if name is None:
            if output is not None:
                fail("--output: nothing is copied without a NAME: give one", BAD_INPUT)
            _list(as_json)
            return
        found = shipped_experiment(name)
        if found is None:
            fail(f"{name}: no shipped experiment has this name: {instead_of(name)}", BAD_INPUT)
        _copy(found, output or Path(f"{found.name}.yaml"), as_json)


def _copy(found: ShippedExperiment, output: Path, as_json: bool) -> None:
    if output == STANDARD_OUTPUT:
        if as_json:
            fail("--output -: --json has standard output, give a file", BAD_INPUT)
        sys.stdout.write(found.text_for(Path()))
        return
    texts = {output: found.text_for(output.parent)}
    texts |= {output.parent / path.name: path.read_text(encoding="utf-8") for path in found.beside}
    if len(texts) <= len(found.beside):
        fail(f"--output {output}: the experiment's program has this name: give another", BAD_INPUT)
    for path in texts:
        if path.exists():
            fail(f"{path}: the file exists already: give another --output", BAD_INPUT)
    for path, text in texts.items():
        with path.open("x", encoding="utf-8") as copy:
            copy.write(text)
    if as_json:
        print(json.dumps({"file": str(output), "beside": [str(path) for path in texts if path != output]}, indent=2))
        return
    for path in texts:
        print(path)


def _list(as_json: bool) -> None:
    if as_json:
        listed = [
            {
                "name": each.name,
                "shows": each.shows,
                "clock": each.clock,
                "torch": each.trains_in_torch,
                "packages": each.packages,
                "file": str(each.path),
            }
            for each in shipped_experiments()
        ]
        print(json.dumps({"examples": listed}, indent=2, ensure_ascii=False))
        return
    listed_here = shipped_experiments()
    columns: list[Column[ShippedExperiment]] = [
        Column("name", lambda each: each.name, form="name"),
        Column("shows", lambda each: each.shows, form="text"),
        Column("a run needs", _needs, form="text"),
    ]
    table = Table.of("examples", "", listed_here, columns, _HINT)
    print_table(table, terminal(), sections=[each.path.parent for each in listed_here])


def _needs(experiment: ShippedExperiment) -> str:
    return ", ".join(["make virtual" if experiment.clock == "virtual" else "hosts", *experiment.packages])
