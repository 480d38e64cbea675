"""Options of commands that work on a rack, and what they mean for an experiment's engine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from wanbed.ground.strict_model import InputError

RACK = "rack"
"""The engine that emulates over the machines of a rack."""

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
    typer.Option("--overlay", help="What joins machines of a rack: vxlan (default), macvlan or wireguard (encrypted)."),
]
Queue = Annotated[
    bool, typer.Option("--queue", help="Wait for machines of the rack that another run uses, instead of ending.")
]


def with_engine(
    file: Path, overrides: Sequence[str], rack: str | None, *, others: Sequence[str], dry_run: bool
) -> list[str]:
    """Return the overrides, followed by that of the engine if ``rack`` decides it.

    ``others`` are the options given that only a rack has. Raise InputError for an engine that needs an address, and for
    options that do not go together.
    """
    from wanbed.runner.experiment.sweep_points import read_experiment  # noqa: PLC0415 - these options are in the help too

    engine = read_experiment(file, overrides)[0].get("engine", "emulate")
    if rack is None:
        if engine == RACK and not dry_run:
            raise InputError(
                f"{file}: engine: rack wants the machines' address: give --rack HOST:PORT of a Ray cluster's head, or "
                "--engine emulate"
            )
        if others:
            raise InputError(f"{others[0]}: only a run over a rack has it: give --rack HOST:PORT too, or leave it out")
        return [*overrides]
    if engine == "simulate":
        raise InputError(f"--rack: {file} simulates: call `wanbed simulate --rack`, or give --engine rack to emulate")
    return [*overrides, *([] if engine == RACK else [f"engine={RACK}"])]
