"""Describe a program that can run: how many iterations it does, and where its relative words begin."""

from dataclasses import dataclass
from pathlib import Path

from runner.experiment.program.program_spec import ProgramSpec


@dataclass(frozen=True)
class ResolvedProgram:
    """A user's program with every default filled in.

    Of ``iterations`` the first ``warmup`` and the last ``profiled`` count in no iteration time. ``folder`` is that of
    the experiment file.
    """

    spec: ProgramSpec
    iterations: int
    warmup: int
    profiled: int
    folder: Path

    @property
    def marked_by(self) -> str:
        """What ends an iteration: optimizer, call or output."""
        return self.spec.marked_by or "optimizer"

    @property
    def uses_torchrun(self) -> bool:
        """Whether torch's launcher starts the processes of a host."""
        return self.spec.launcher == "torchrun"
