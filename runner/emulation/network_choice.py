"""Bring up the network of an experiment's first sweep point, for commands that run no workload."""

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from wanbed.ground.errors import InputError, prefixed
from wanbed.runner.experiment.experiment_document import ExperimentDocument
from wanbed.runner.planner.experiment_file import resolve_document
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.testbed.gpus.gpu_assignment import GpuAssignment
from wanbed.testbed.network.topology import Topology, check_can_be_emulated
from wanbed.testbed.substrate.offer import RELAY

if TYPE_CHECKING:
    from wanbed.testbed.testbed import Testbed


def emulated_points(document: ExperimentDocument) -> tuple[SweepPoint, ...]:
    """Return the sweep points of an experiment. Raise InputError if one of their networks cannot be emulated."""
    points = resolve_document(document, trains=False).points()
    with prefixed(f"{document.source}: "):
        for point in points:
            check_can_be_emulated(point.topology)
    return points


def first_point(document: ExperimentDocument) -> SweepPoint:
    """Return the only or the first sweep point of an experiment, and report on stderr if there are others.

    Raise InputError as ``emulated_points`` does.
    """
    points = emulated_points(document)
    if len(points) > 1:
        values = ", ".join(f"{name}={value}" for name, value in points[0].values.items())
        print(f"wanbed: the first of {len(points)} sweep points: {values}", file=sys.stderr)
    return points[0]


def source_of(path: Path) -> str:
    """Return the source in a testbed's record: the path of the experiment file, by which `wanbed exec` finds it."""
    return str(path.resolve())


def check_namespaces(command: str, substrate: str) -> None:
    """Raise InputError if ``command`` runs programs that need a network of their own, which a relay's hosts lack."""
    if substrate == RELAY:
        raise InputError(
            f"--substrate relay: `wanbed {command}` needs hosts with a network of their own, because any program's "
            "connections may go anywhere: use it where namespaces are allowed (--substrate kernel or guest)"
        )


def network_up(
    topology: Topology,
    substrate: str,
    file: Path,
    *,
    gpus: GpuAssignment | None = None,
    shaped: bool = True,
    dilation: float = 1.0,
    awake: bool = True,
) -> "AbstractContextManager[Testbed]":
    """Return the context manager of a testbed for an experiment file, see ``wanbed.testbed.testbed.bring_up``."""
    # It imports Mininet, which takes time and is not installed on machines that only simulate.
    from wanbed.testbed.testbed import bring_up  # noqa: PLC0415

    return bring_up(
        topology,
        substrate=substrate,
        source=source_of(file),
        gpus=gpus,
        shaped=shaped,
        dilation=dilation,
        awake=awake,
    )
