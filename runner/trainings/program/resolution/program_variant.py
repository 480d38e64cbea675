"""Describe a variant that a program of the user's trains."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wanbed.runner.resolve.placement import Pair
from wanbed.runner.resolve.resolved_variant import ResolvedVariant, Transfer
from wanbed.runner.resolve.stage_rings import StageRings
from wanbed.runner.trainings.program.resolution.resolved_program import ResolvedProgram


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
