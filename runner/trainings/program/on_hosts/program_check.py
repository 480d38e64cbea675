"""Check, before a network comes up, that the programs of an experiment are there."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from wanbed.ground.shown_text import shown
from wanbed.ground.strict_model import InputError
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.trainings.program.resolution.program_variant import ProgramVariant
from wanbed.runner.trainings.program.resolution.resolved_program import ResolvedProgram
from wanbed.runner.trainings.program.spec.placeholders import filled, placeholders_in
from wanbed.testbed.hosts.search_path import search_path


def check_programs(point: SweepPoint) -> None:
    """Raise InputError, naming the field, for a program that is not found or cannot be executed."""
    for position, variant in enumerate(point.variants):
        if isinstance(variant, ProgramVariant):
            for field, name in wanted_programs(variant.program):
                fault = _fault(name, variant.program)
                if fault is not None:
                    raise InputError(f"variants.{position}.program.{field}: {shown(name)}: {fault}")


def wanted_programs(program: ResolvedProgram) -> Iterator[tuple[str, str]]:
    """Yield the field and name, with its placeholders, of each program that has to be there before the trial."""
    spec = program.spec
    if spec.setup is not None:
        # It may make the others.
        yield "setup", spec.setup[0]
        return
    yield "command", spec.command[0]
    if program.uses_torchrun and program.torchrun_python is None:
        yield "launcher", "torchrun"
    yield from ((f"also.{number}.command", each.command[0]) for number, each in enumerate(spec.also))


def program_fault(name: str, path: str) -> str | None:
    """Return why a program cannot be started, with the remedy; None if it can. ``path`` is the PATH to search."""
    if "/" not in name:
        found = shutil.which(name, path=path) is not None
        return None if found else "there is no such program on PATH: install it, or give its path"
    if not os.path.isfile(name):
        return f"there is no such program here, in {Path.cwd()}: give the path of one"
    return None if os.access(name, os.X_OK) else "it is not executable: chmod +x it, or start it by its interpreter"


def _fault(name: str, program: ResolvedProgram) -> str | None:
    values = program.values_everywhere
    path = program.spec.env.get("PATH", search_path())
    if not placeholders_in(name) | placeholders_in(path) <= values.keys():
        # It is known only on a host.
        return None
    return program_fault(filled(name, values), filled(path, values))
