"""Check machines for the needs of the hosts that they would carry: programs, files, modules, compute back ends."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wanbed.runner.rack.shipped.program_files import packed_programs, programs_of
from wanbed.runner.rack.shipped.program_needs import ProgramNeeds, program_needs
from wanbed.runner.rack.shipped.user_modules import UserModules, schedules_of, user_modules
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.trainings.program.resolution import ResolvedProgram

Ask = Callable[[str, str, tuple[Any, ...]], str | None]
"""Calls a method of ``wanbed.runner.rack.on_machine.Wanted`` on the named machine: what it lacks, None if nothing."""


class WantedOfMachines:
    """Ask machines what they lack for sweep points, each machine once for the same.

    ``runs`` is the folder that runs are written to, which no machine would be sent.
    """

    def __init__(self, ask: Ask, runs: Path) -> None:
        self._ask, self._runs = ask, runs
        self._answers: dict[tuple[str, str, str], str | None] = {}
        self._modules: dict[tuple[str, ...], UserModules] = {}
        self._needs: list[tuple[tuple[tuple[str, ResolvedProgram], ...], ProgramNeeds]] = []

    def lacking(self, point: SweepPoint, machines: Sequence[str]) -> list[str]:
        """Return a line for each thing that a machine lacks.

        Raise InputError for what cannot be sent, and does not have to be on the machines either.
        """
        compute = point.spec.compute
        modules, needs = self._modules_of(point), self._needs_of(point)
        lines = []
        for machine in machines:
            # A back end of the user's is imported from the modules.
            for method, wanted, key in (
                ("load_modules", (modules,), f"{modules.schedules} {modules.backends}"),
                ("lacking_for", (compute.backend_path, compute.options), _key(compute.backend_path, compute.options)),
                ("lacking_program", (needs,), repr(needs)),
            ):
                if (line := self._asked(machine, method, wanted, key)) is not None:
                    lines.append(f"{machine}: {line}")
        return lines

    def _asked(self, machine: str, method: str, wanted: tuple[Any, ...], key: str) -> str | None:
        own = machine, method, key
        if own not in self._answers:
            self._answers[own] = self._ask(machine, method, wanted)
        return self._answers[own]

    def _modules_of(self, point: SweepPoint) -> UserModules:
        classes = (*schedules_of(point.scheduled), point.spec.compute.backend_path)
        if classes not in self._modules:
            self._modules[classes] = user_modules([point])
        return self._modules[classes]

    def _needs_of(self, point: SweepPoint) -> ProgramNeeds:
        programs = tuple(programs_of([point]))
        if not programs:
            return ProgramNeeds()
        known = next((needs for each, needs in self._needs if each == programs), None)
        if known is None:
            known = program_needs(programs, packed_programs((program for _, program in programs), self._runs))
            self._needs.append((programs, known))
        return known


def _key(*parts: Any) -> str:
    return json.dumps(parts, default=str, sort_keys=True)
