"""The shortest period, and the shortest makespan, that any order of actions and transfers gives a DP-cell, by CP-SAT.

Microbatches are alike, so that each kind of action and each pipeline's link takes them in turn; everything else is left
to the solver: when a stage does what, whether it idles on purpose, and whose transfer goes first on a shared boundary.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import gcd

from ortools.sat.python import cp_model

from wanbed.workloads.message import MessageKind
from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts

_HORIZON = 4
"""Starts lie within so many times what all stages take one after the other: an iteration may stretch for its period."""
_EFFORT = 3.0
"""Bounds a search, in the solver's own seconds, which are the same on every machine."""


@dataclass(frozen=True)
class Interval:
    """What is proven of a shortest time: it is neither below ``least_ns`` nor above ``most_ns``."""

    least_ns: int
    most_ns: int

    @property
    def exact(self) -> bool:
        return self.least_ns == self.most_ns


class OptimalCell:
    """A DP-cell of ``costs``, whose backwards are split or whole, without links that have a state. Solve it once."""

    def __init__(self, costs: CellCosts, *, splits: bool) -> None:
        self._costs, self._splits = costs, splits
        self._stages, self._microbatches = range(costs.shape.stages), range(costs.shape.microbatches)
        self._pipelines = range(costs.pipelines)
        self._model = cp_model.CpModel()
        self._unit = gcd(*self._every_time_ns()) or 1
        self._ends: dict[tuple[int, int], cp_model.LinearExpr] = {}
        self._firsts: dict[tuple[int, int], cp_model.IntVar] = {}
        self._lines: list[tuple[cp_model.LinearExpr, cp_model.LinearExpr]] = []
        self._build()

    def period(self) -> Interval:
        """Solve for the time between iterations: each stage begins one when it has ended its part of the one before."""
        period = self._model.new_int_var(0, self._horizon, "period")
        for (_, stage), first in self._firsts.items():
            between = self._costs.between_ns[stage] // self._unit if self._costs.between_ns else 0
            for pipeline in self._pipelines:
                self._model.add(period >= self._ends[pipeline, stage] + between - first)
        for opening, closing in self._lines:
            self._model.add(period >= closing - opening)
        return self._least(period)

    def makespan(self) -> Interval:
        """Solve for the time from an iteration's first start to its last end."""
        makespan = self._model.new_int_var(0, self._horizon, "makespan")
        for end in self._ends.values():
            self._model.add(makespan >= end)
        return self._least(makespan)

    def _least(self, objective: cp_model.IntVar) -> Interval:
        self._model.minimize(objective)
        solver = cp_model.CpSolver()
        solver.parameters.max_deterministic_time = _EFFORT
        solver.parameters.num_workers = 1
        # It takes interrupts over, and never gives them back: a later one would end the test process on the spot.
        solver.parameters.catch_sigint_signal = False
        status = solver.solve(self._model)
        assert status in {cp_model.OPTIMAL, cp_model.FEASIBLE}, solver.status_name(status)
        return Interval(round(solver.best_objective_bound) * self._unit, round(solver.objective_value) * self._unit)

    @cached_property
    def _horizon(self) -> int:
        costs, actions = self._costs, sum(sum(self._durations(stage)) for stage in self._stages)
        transfers = sum(
            costs.pipelines * links.of(kind).occupancy_ns + links.of(kind).latency_ns
            for links in costs.boundaries
            for kind in MessageKind
        )
        between_ns = max(costs.between_ns, default=0)
        return _HORIZON * (len(self._microbatches) * (actions + transfers) + between_ns) // self._unit

    def _kinds(self, stage: int) -> tuple[ActionKind, ...]:
        recompute = (ActionKind.RECOMPUTE,) if self._costs.shape.recomputes(stage) else ()
        parts = (ActionKind.BACKWARD_INPUT, ActionKind.BACKWARD_WEIGHT) if self._splits else (ActionKind.BACKWARD,)
        return (ActionKind.FORWARD, *recompute, *parts)

    def _durations(self, stage: int) -> list[int]:
        return [self._costs.durations_ns[kind][stage] for kind in self._kinds(stage)]

    def _every_time_ns(self) -> Iterator[int]:
        for stage in self._stages:
            yield from self._durations(stage)
        for links in self._costs.boundaries:
            for kind in MessageKind:
                yield from (links.of(kind).occupancy_ns, links.of(kind).latency_ns)
        yield from self._costs.between_ns

    def _build(self) -> None:
        starts = {
            (pipeline, stage): self._stage(pipeline, stage) for pipeline in self._pipelines for stage in self._stages
        }
        gradient = ActionKind.BACKWARD_INPUT if self._splits else ActionKind.BACKWARD
        for boundary, links in enumerate(self._costs.boundaries):
            for message, action, ends in (
                (MessageKind.ACTIVATION, ActionKind.FORWARD, (boundary, boundary + 1)),
                (MessageKind.GRADIENT, gradient, (boundary + 1, boundary)),
            ):
                self._transfers(links.of(message), action, ends, starts, shared=links.shared)

    def _stage(self, pipeline: int, stage: int) -> dict[ActionKind, list[cp_model.IntVar]]:
        """Add one stage's actions: each microbatch's in order, in turn, one at a time, within the memory bound."""
        model, kinds = self._model, self._kinds(stage)
        lasting = [duration_ns // self._unit for duration_ns in self._durations(stage)]
        starts = {kind: [model.new_int_var(0, self._horizon, "") for _ in self._microbatches] for kind in kinds}
        for index, kind in enumerate(kinds):
            for one, other in pairwise(starts[kind]):
                model.add(other >= one + lasting[index])
            if index:
                for before, own in zip(starts[kinds[index - 1]], starts[kind], strict=True):
                    model.add(own >= before + lasting[index - 1])
        model.add_no_overlap(
            model.new_fixed_size_interval_var(start, duration, "")
            for kind, duration in zip(kinds, lasting, strict=True)
            for start in starts[kind]
        )
        bound = self._costs.shape.most_in_flight(stage)
        for freed, start in zip(starts[kinds[-1]], starts[kinds[0]][bound:], strict=False):
            model.add(start >= freed + lasting[-1])
        self._firsts[pipeline, stage] = starts[kinds[0]][0]
        self._ends[pipeline, stage] = starts[kinds[-1]][-1] + lasting[-1]
        return starts

    def _transfers(
        self,
        way: BoundaryCosts,
        action: ActionKind,
        ends: tuple[int, int],
        starts: dict[tuple[int, int], dict[ActionKind, list[cp_model.IntVar]]],
        *,
        shared: bool,
    ) -> None:
        """Add the transfers of one direction of a boundary, each after its action, and before the one that needs it."""
        model, (sender, receiver) = self._model, ends
        occupancy, latency = way.occupancy_ns // self._unit, way.latency_ns // self._unit
        lasting = self._costs.durations_ns[action][sender] // self._unit
        on_line: list[list[cp_model.IntVar]] = []
        for pipeline in self._pipelines:
            left = [model.new_int_var(0, self._horizon, "") for _ in self._microbatches]
            for sent, start, needed in zip(
                left, starts[pipeline, sender][action], starts[pipeline, receiver][action], strict=True
            ):
                model.add(sent >= start + lasting)
                model.add(needed >= sent + occupancy + latency)
            for one, other in pairwise(left):
                model.add(other >= one + occupancy)
            on_line.append(left)
        if not shared:
            self._lines += [(left[0], left[-1] + occupancy) for left in on_line]
            return
        model.add_no_overlap(
            model.new_fixed_size_interval_var(start, occupancy, "") for left in on_line for start in left
        )
        first, last = (model.new_int_var(0, self._horizon, "") for _ in range(2))
        for left in on_line:
            model.add(first <= left[0])
            model.add(last >= left[-1])
        if not self._lines:
            # Pipelines are alike, so that they may send their first in their order, over one of the lines.
            for earlier, later in pairwise(on_line):
                model.add(earlier[0] <= later[0])
        self._lines.append((first, last + occupancy))
