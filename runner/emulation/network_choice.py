"""Choose and bring up the network of a command that runs no workload: that of an experiment's first cell."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from runner.planner.experiment_file import load_experiment
from runner.resolve.experiment import Cell
from testbed.gpus.gpu_assignment import GpuAssignment
from testbed.network.topology import Topology, check_can_be_emulated

if TYPE_CHECKING:
    from testbed.testbed import Testbed


def emulated_cells(path: Path, overrides: Sequence[str]) -> tuple[Cell, ...]:
    """Return every cell of an experiment, whose networks can be brought up whatever its engine. Raises InputError."""
    cells = load_experiment(path, overrides, trains=False).cells()
    for cell in cells:
        check_can_be_emulated(cell.topology, f"{path}: topology")
    return cells


def first_cell(path: Path, overrides: Sequence[str]) -> Cell:
    """Return an experiment's only cell or, with a sweep, its first, reporting so. Raises InputError."""
    cells = emulated_cells(path, overrides)
    if len(cells) > 1:
        values = ", ".join(f"{name}={value}" for name, value in cells[0].values.items())
        print(f"wanbed: the first of {len(cells)} swept cells: {values}", file=sys.stderr)
    return cells[0]


def source_of(path: Path) -> str:
    """Return what a testbed's record says it is for: the experiment's file, by which `wanbed exec` finds it."""
    return str(path.resolve())


def network_up(
    topology: Topology, substrate: str, file: Path, *, gpus: GpuAssignment | None = None, shaped: bool = True
) -> "AbstractContextManager[Testbed]":
    """Return a testbed for an experiment's file, as ``testbed.testbed.bring_up`` makes it."""
    # Mininet comes with it, which commands that bring nothing up spare and a machine that only simulates lacks.
    from testbed.testbed import bring_up  # noqa: PLC0415

    return bring_up(topology, substrate=substrate, source=source_of(file), gpus=gpus, shaped=shaped)
