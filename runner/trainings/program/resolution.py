"""Resolve a variant that runs a program of the user's: its processes, in order of the hosts, are the ranks."""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from wanbed.ground.errors import InputError
from wanbed.ground.exclusions import Exclusion, check_exclusions
from wanbed.runner.resolve.placement import Pair, Placement, StagePlace
from wanbed.runner.resolve.resolved_variant import ResolvedVariant, Transfer
from wanbed.runner.resolve.stage_rings import StageRings
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.runner.trainings.program.spec import ProgramSpec


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
        """Tell whether torch's launcher starts the processes of a host."""
        return self.spec.launcher == "torchrun"


@dataclass(frozen=True, kw_only=True)
class ProgramVariant(ResolvedVariant):
    """A variant that ``program`` trains: each of its processes is a rank, of which nothing else is known."""

    program: ResolvedProgram

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of places that are taken to exchange, since a program makes its own connections: a ring of all."""
        rank, places = self.placement.rank, self.placement.replicas(0)
        rings = StageRings.of(places, hierarchical=self.transport.is_hierarchical)
        return self._pairs_of([(rank(one), rank(other)) for one, other in rings.pairs])

    def transfers(self) -> Iterator[Transfer]:
        """Yield nothing: a program sends what it sends."""
        return iter(())

    def serial_s(self, transfer_s: Callable[[int], float]) -> float:
        """Raise TypeError: how long a program takes is not known."""
        raise TypeError(f"{self.name}: how long a program takes is not known")

    def document(self) -> Mapping[str, Any]:
        """Return where the program's processes run: nothing else is left open."""
        return {"placement": self._places_document()}


_OF_OUR_TRANSPORT = (
    "transport.model",
    "transport.connections",
    "transport.keep_warm",
    "transport.overlap",
    "transport.held_until",
    "transport.receive",
    "transport.activation",
    "transport.sharing",
    "transport.pipelines_per_cell",
    "transport.all_reduce",
    "transport.all_reduce_overlap",
    "transport.bucket",
    "transport.piece",
)

_INCOMPATIBLE = (
    Exclusion(("options", "placement", "training", "prefill", "pool"), "a program decides that itself"),
    Exclusion(_OF_OUR_TRANSPORT, "a program makes its own connections"),
)
"""The fields that a variant with a program does not have."""


def resolve(written: WrittenVariant) -> ProgramVariant:
    """Return the variant with one rank for each of the program's processes; each is a whole replica.

    Raise InputError for fields that only a schedule has, for more processes than a host has GPUs, and where no
    iteration is left to measure.
    """
    here, program = written.field, written.variant.program
    assert program is not None
    check_exclusions(*_INCOMPATIBLE, of=written.variant, where=f"{here}.")
    _check_hosts(written, program)
    training = written.spec.training
    iterations = program.iterations or training.iterations
    warmup = training.warmup if program.warmup is None else program.warmup
    profiled = program.profile or 0
    if warmup < 1:
        raise InputError(
            f"{here}.program.warmup: {warmup}: the first iteration begins with the program and is not measured: give "
            "at least 1"
        )
    if iterations <= warmup + profiled:
        raise InputError(
            f"{here}.program.iterations: {iterations}, of which {warmup} warm up and {profiled} are profiled, leaves "
            "none to measure: give more iterations"
        )
    resolved = ResolvedProgram(program, iterations, warmup, profiled, written.directory.resolve())
    return ProgramVariant(spec=written.variant, placement=_placement(written, program), program=resolved)


def _placement(written: WrittenVariant, program: ProgramSpec) -> Placement:
    seats = []
    for host in written.topology.hosts:
        processes = program.processes_per_host or host.gpus
        if processes > host.gpus:
            raise InputError(
                f"{written.field}.program.processes_per_host: {processes}, where {host.name} has {host.gpus}: give its "
                "datacenter gpus_per_host, or fewer processes"
            )
        seats += [(host, local) for local in range(processes)]
    return Placement(tuple((StagePlace(rank, 0, host, local),) for rank, (host, local) in enumerate(seats)))


def _check_hosts(written: WrittenVariant, program: ProgramSpec) -> None:
    names = {host.name for host in written.topology.hosts}
    for position, each in enumerate(program.also):
        if each.host not in names:
            raise InputError(
                f"{written.field}.program.also.{position}.host: no host {each.host!r} here: {', '.join(sorted(names))}"
            )
