"""Options of commands that work on a rack, and what they mean for an experiment's engine."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wanbed.ground.strict_model import InputError

if TYPE_CHECKING:
    # These options are in the help too, which loads no experiment.
    from wanbed.runner.experiment.experiment_document import ExperimentDocument

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
    typer.Option("--overlay", help="What joins machines of a rack: vxlan (default) or wireguard (encrypted)."),
]
Queue = Annotated[
    bool, typer.Option("--queue", help="Wait for machines of the rack that another run uses, instead of ending.")
]


def with_engine(
    document: "ExperimentDocument", file: Path, rack: str | None, *, others: Sequence[str], dry_run: bool
) -> "ExperimentDocument":
    """Return the document of ``file``, on a rack's engine if there is an address of a ``rack``.

    ``others`` are the options given that only a rack has. Raise InputError for an engine that needs an address, and for
    options that do not go together.
    """
    engine = document.spec.engine
    if rack is None:
        if engine == RACK and not dry_run:
            raise InputError(
                f"{file}: engine: rack wants the machines' address: give --rack HOST:PORT of a Ray cluster's head, or "
                "--engine emulate"
            )
        if others:
            raise InputError(f"{others[0]}: only a run over a rack has it: give --rack HOST:PORT too, or leave it out")
        return document
    if engine == "simulate":
        raise InputError(f"--rack: {file} simulates: call `wanbed simulate --rack`, or give --engine rack to emulate")
    return document if engine == RACK else document.overridden(f"engine={RACK}")
