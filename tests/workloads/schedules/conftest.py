"""Pipelines with exact times, alone or as a cell that shares its links: the yardstick for schedules.

Everything of one instant happens before anything is decided at it.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import pytest

from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.atlas import Atlas
from wanbed.workloads.schedules.planning.cell_plan import CellCosts, CellPlan, Turn
from wanbed.workloads.schedules.schedule import Schedule
from wanbed.workloads.schedules.varuna import Varuna


@dataclass
class PipelineRun:
    """What became of a run: each stage's actions in order, its deepest in-flight count, and when all had ended.

    ``arrivals`` has the time at which each message was at its stage.
    """

    end: int = 0
    actions: dict[int, list[Action]] = field(default_factory=dict)
    deepest: dict[int, int] = field(default_factory=dict)
    arrivals: dict[tuple[int, Message], int] = field(default_factory=dict)


def at_once(*_: object) -> int:
    return 0


@dataclass
class Links:
    """The boundaries of a cell; times are asked for (pipeline, boundary, message).

    A shared boundary carries one transfer at a time in each direction. ``turns`` of (message kind, boundary) are
    followed strictly; without, first come first served. Where ``sends_block``, a stage that sends acts again when its
    transfer has ended.
    """

    latency: Callable[[int, int, Message], int] = at_once
    occupancy: Callable[[int, int, Message], int] = at_once
    shared: Sequence[bool] = ()
    turns: dict[tuple[MessageKind, int], Sequence[tuple[int, int]]] = field(default_factory=dict)
    sends_block: bool = False


class _Cell:
    def __init__(
        self, schedules: Sequence[Schedule], duration: Callable[[int, int, Action], int], links: Links
    ) -> None:
        self.schedules, self.duration, self.links = schedules, duration, links
        self.stages = range(schedules[0].shape.stages)
        self.runs = [
            PipelineRun(actions={s: [] for s in self.stages}, deepest=dict.fromkeys(self.stages, 0)) for _ in schedules
        ]
        self.order = count()
        self.events: list[tuple[int, int, int, int, Action | Message | None]] = []
        self.free: dict[tuple[object, ...], int] = {}
        self.waiting: dict[tuple[object, ...], list[tuple[int, Message]]] = {}
        self.taken: dict[tuple[object, ...], int] = {}
        self.held: dict[tuple[int, int], int | None] = {}

    def push(self, time: int, pipeline: int, stage: int, what: Action | Message | None) -> None:
        heapq.heappush(self.events, (time, next(self.order), pipeline, stage, what))

    def run(self) -> list[PipelineRun]:
        now = 0
        while True:
            for key in self.waiting:
                self.start_transfers(key, now)
            for pipeline, schedule in enumerate(self.schedules):
                for stage in self.stages:
                    self.ask(pipeline, schedule, stage, now)
            if not self.events:
                return self.runs
            now = self.events[0][0]
            while self.events and self.events[0][0] == now:
                self.happen(now, *heapq.heappop(self.events)[2:])

    def ask(self, pipeline: int, schedule: Schedule, stage: int, now: int) -> None:
        held_until = self.held.get((pipeline, stage), 0)
        if held_until is None or held_until > now:
            return
        action = schedule.next(stage)
        if action is not None:
            run = self.runs[pipeline]
            run.actions[stage].append(action)
            run.deepest[stage] = max(run.deepest[stage], schedule.in_flight(stage))
            self.push(now + self.duration(pipeline, stage, action), pipeline, stage, action)

    def happen(self, now: int, pipeline: int, stage: int, what: Action | Message | None) -> None:
        if what is None:
            return
        self.runs[pipeline].end = now
        schedule = self.schedules[pipeline]
        if isinstance(what, Message):
            self.runs[pipeline].arrivals[stage, what] = now
            schedule.arrived(stage, what)
            return
        schedule.finished(stage, what)
        if (sends := schedule.sends(stage, what)) is not None:
            to_stage, message = sends
            boundary = min(stage, to_stage)
            if to_stage == stage:
                schedule.arrived(stage, message)
                return
            if schedule.shape.virtual_stages > 1:
                self.push(now + self.links.latency(pipeline, boundary, message), pipeline, to_stage, message)
                return
            own = None if self.links.shared and self.links.shared[boundary] else pipeline
            self.waiting.setdefault((message.kind, boundary, own), []).append((pipeline, message))
            if self.links.sends_block:
                self.held[pipeline, stage] = None

    def start_transfers(self, key: tuple[object, ...], now: int) -> None:
        kind, boundary = key[:2]
        assert isinstance(kind, MessageKind)
        assert isinstance(boundary, int)
        turns = self.links.turns.get((kind, boundary), ())
        while self.waiting[key] and self.free.get(key, 0) <= now:
            pipeline, message = self.waiting[key][0]
            if turns:
                pipeline, microbatch = turns[self.taken.get(key, 0)]
                message = Message(kind, microbatch)
                if (pipeline, message) not in self.waiting[key]:
                    return
            self.waiting[key].remove((pipeline, message))
            self.taken[key] = self.taken.get(key, 0) + 1
            end = self.free[key] = now + self.links.occupancy(pipeline, boundary, message)
            to_stage = boundary + (kind is MessageKind.ACTIVATION)
            self.push(end, pipeline, to_stage, None)
            if self.links.sends_block:
                self.held[pipeline, boundary + (kind is MessageKind.GRADIENT)] = end
            self.push(end + self.links.latency(pipeline, boundary, message), pipeline, to_stage, message)


def _run_cell(
    schedules: Sequence[Schedule], duration: Callable[[int, int, Action], int], links: Links
) -> list[PipelineRun]:
    """Run one iteration of a cell until no event is left; one run for each pipeline."""
    return _Cell(schedules, duration, links).run()


def _run_pipeline(
    schedule: Schedule, duration: Callable[[int, Action], int], latency: Callable[[int, Message], int]
) -> PipelineRun:
    """Run one pipeline over links that have nothing but latency, asked for the stage a message goes to."""
    links = Links(
        latency=lambda _, boundary, message: latency(boundary + (message.kind is MessageKind.ACTIVATION), message)
    )
    return _run_cell([schedule], lambda _, stage, action: duration(stage, action), links)[0]


@pytest.fixture(scope="session")
def run_pipeline() -> Callable[..., PipelineRun]:
    return _run_pipeline


@pytest.fixture(scope="session")
def run_cell() -> Callable[..., list[PipelineRun]]:
    """``run_cell(schedules, duration, plan, **links)``; ``duration(pipeline, stage, action)``, turns by the plan."""
    return lambda schedules, duration, plan, **links: _run_cell(
        schedules, duration, Links(**links, turns=turns_of(plan))
    )


def turns_of(plan: CellPlan) -> dict[tuple[MessageKind, int], Sequence[Turn]]:
    """A plan's turns as ``Links`` has them."""
    by_kind = {MessageKind.ACTIVATION: plan.activation_turns, MessageKind.GRADIENT: plan.gradient_turns}
    return {(kind, boundary): order for kind, orders in by_kind.items() for boundary, order in enumerate(orders)}


def _run_profile(schedules: Sequence[Schedule], cell: CellCosts, plan: CellPlan | None = None) -> list[PipelineRun]:
    """Run a cell whose times are those of its profile; with a plan, links keep its turns."""
    by_kind = {
        ActionKind.FORWARD: cell.forward_ns,
        ActionKind.RECOMPUTE: cell.recompute_ns,
        ActionKind.BACKWARD: cell.backward_ns,
    }
    links = Links(
        latency=lambda _, boundary, __: cell.boundaries[boundary].latency_ns,
        occupancy=lambda _, boundary, __: cell.boundaries[boundary].occupancy_ns,
        shared=[boundary.shared for boundary in cell.boundaries],
        turns=turns_of(plan) if plan else {},
        sends_block=cell.sends_block,
    )
    return _run_cell(schedules, lambda _, stage, action: by_kind[action.kind][stage], links)


def _run_plan(cell: CellCosts, plan: CellPlan) -> list[PipelineRun]:
    return _run_profile([Atlas.of_plan(cell.shape, plan, pipeline) for pipeline in range(cell.pipelines)], cell, plan)


def _varuna_ns(cell: CellCosts) -> int:
    runs = _run_profile([Varuna(cell.shape) for _ in range(cell.pipelines)], cell)
    return max(run.end for run in runs)


@pytest.fixture(scope="session")
def run_plan() -> Callable[[CellCosts, CellPlan], list[PipelineRun]]:
    """Run a cell by its plan, everything taking what the profile says."""
    return _run_plan


@pytest.fixture(scope="session")
def varuna_ns() -> Callable[[CellCosts], int]:
    """How long a cell takes under Varuna's rule over the profile's links, transfers served as they come."""
    return _varuna_ns
