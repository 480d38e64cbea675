"""Describe a program that can run: how many iterations it does, and where its relative words begin."""

import sys
from dataclasses import dataclass
from pathlib import Path, PurePath

from wanbed.runner.trainings.program.spec.program_spec import ProgramSpec


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
        """The event that ends an iteration: optimizer, call or output."""
        return self.spec.marked_by or "optimizer"

    @property
    def values_everywhere(self) -> dict[str, str]:
        """The values of the placeholders that stand for the same on every host."""
        return {"python": sys.executable, "folder": str(self.folder)}

    @property
    def torchrun_python(self) -> str | None:
        """The word for the Python whose torch has the launcher: that of the command; None if that names none."""
        program = self.spec.command[0]
        return program if program == "{python}" or PurePath(program).name.startswith("python") else None

    @property
    def uses_torchrun(self) -> bool:
        """Whether torch's launcher starts the processes of a host."""
        return self.spec.launcher == "torchrun"
