"""Run the orders and turns of a DP-cell whose backwards are split.

The turns of a line are a sequence of pipelines.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from wanbed.workloads.message import MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind, known_action
from wanbed.workloads.schedules.planning.cell_plan import CellCosts, CellPlan, Turn
from wanbed.workloads.schedules.planning.stage_order import Order, is_whole, split_kinds

Direction = tuple[MessageKind, int]
"""One direction of a boundary, by the stage that sends."""

_NUMBERS = {
    ActionKind.FORWARD: 0,
    ActionKind.RECOMPUTE: 1,
    ActionKind.BACKWARD_INPUT: 2,
    ActionKind.BACKWARD_WEIGHT: 3,
}
"""The numbers of kinds in a run, which is quicker with numbers."""

_FORWARD: Final = 0
_INPUT: Final = 2

RUN_ITERATIONS = 3
"""The iterations of a run. The last one alone is measured: by then the stages' offsets have settled."""

_TRACED = 2
"""The last iterations, of which the critical path is followed."""

_UNSHARED = -(1 << 30)
"""The place of a transfer over a line of one pipeline, which has no turns to change."""


@dataclass(frozen=True)
class CellOrders:
    """The order of each stage of each pipeline, and the turns of each shared line: a sequence of pipelines.

    ``stages`` has the stages of one pipeline after the other.
    """

    stages: tuple[Order, ...]
    turns: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class CellRun:
    """A run: its period and its makespan.

    The period is the most that any stage takes from when it may begin one iteration until it may begin the next. The
    makespan is that of the first iteration.
    """

    period_ns: int
    makespan_ns: int

    @property
    def length_ns(self) -> tuple[int, int]:
        """The times by which runs are compared: first of all the period."""
        return self.period_ns, self.makespan_ns


@dataclass(slots=True)
class _Inbox:
    """The messages of one kind that have come for a stage, in order: when, and the node of each one's transfer.

    ``taken`` counts those that the stage has used.
    """

    arrivals_ns: list[int] = field(default_factory=list)
    transfers: list[int] = field(default_factory=list)
    taken: int = 0


@dataclass(slots=True)
class _Offered:
    """What one pipeline has ready for a shared line, in order: since when, and the node of each one's computation.

    ``sent`` counts what has been sent.
    """

    ready_ns: list[int] = field(default_factory=list)
    computed: list[int] = field(default_factory=list)
    sent: int = 0


@dataclass(slots=True)
class _Line:
    """One direction of the links of a boundary. ``turns`` is None where one pipeline uses it alone.

    ``place`` stands for its transfers in a path, and ``step`` is how many stages further it leads.
    """

    occupancy_ns: int
    latency_ns: int
    turns: tuple[int, ...] | None
    place: int
    step: int
    position: int = 0
    free_ns: int = 0
    last: int = -1
    offered: list[_Offered] = field(default_factory=list)


@dataclass(slots=True)
class _Stage:
    """One stage of one pipeline, and what it has done of this iteration.

    ``order`` has the numbers of kinds. ``durations_ns``, ``awaited`` and ``sends`` have an entry for each number: the
    duration of an action, the messages of which it needs one, and the line of the message that it sends. ``last`` is
    the node that came last, ``held`` is true while sends block and the last one has not left, and ``waits`` while the
    stage is among those to be looked at.
    """

    order: list[int]
    durations_ns: list[int]
    awaited: list[_Inbox | None]
    sends: list[_Line | None]
    position: int = 0
    free_ns: int = 0
    ended_ns: int = 0
    sent_ns: int = 0
    last: int = -1
    held: bool = False
    waits: bool = False


class OrderedCell:
    """One DP-cell whose stages follow orders. Where no boundary is shared, one of its pipelines stands for all.

    ``stages`` and ``pipelines`` are the numbers of those that orders are for, ``actions`` that of their actions.
    """

    def __init__(self, costs: CellCosts) -> None:
        self._costs, self._shape, self.stages = costs, costs.shape, costs.shape.stages
        shared = [(boundary, link) for boundary, link in enumerate(costs.boundaries) if link.shared]
        self.pipelines = costs.pipelines if shared else 1
        self._shared: tuple[Direction, ...] = tuple(
            direction
            for boundary, _ in shared
            for direction in ((MessageKind.ACTIVATION, boundary), (MessageKind.GRADIENT, boundary + 1))
        )

    @property
    def actions(self) -> int:
        """The number of actions of one iteration."""
        return (
            self.pipelines
            * self._shape.microbatches
            * sum(len(split_kinds(self._shape, stage)) for stage in range(self.stages))
        )

    def alike(self, orders: tuple[Order, ...]) -> CellOrders:
        """Return the orders of one pipeline for all of them, which take turns microbatch by microbatch."""
        turns = tuple(range(self.pipelines)) * self._shape.microbatches
        return CellOrders(orders * self.pipelines, (turns,) * len(self._shared))

    def plan(self, orders: CellOrders) -> CellPlan:
        """Return the orders as a plan without times."""
        stages, pipelines = self._shape.stages, self._costs.pipelines
        numbered = [tuple(_numbered(order)) for order in orders.stages]
        own = [tuple(numbered[first : first + stages]) for first in range(0, len(numbered), stages)]
        turns = {direction: _turns(own) for direction, own in zip(self._shared, orders.turns, strict=True)}
        boundaries = range(stages - 1)
        return CellPlan(
            tuple(own) if len(own) == pipelines else tuple(own) * pipelines,
            tuple(turns.get((MessageKind.ACTIVATION, boundary), ()) for boundary in boundaries),
            tuple(turns.get((MessageKind.GRADIENT, boundary + 1), ()) for boundary in boundaries),
            0,
            0,
        )

    @property
    def busy_ns(self) -> int:
        """The time that the busiest stage or line needs for an iteration: no period is shorter."""
        durations, microbatches = self._costs.durations_ns, self._shape.microbatches
        between_ns = self._costs.between_ns or (0,) * self._shape.stages
        stages_ns = [
            microbatches * sum(durations[kind][stage] for kind in split_kinds(self._shape, stage)) + between_ns[stage]
            for stage in range(self._shape.stages)
        ]
        lines_ns = [
            microbatches * link.of(kind).occupancy_ns * (self.pipelines if link.shared else 1)
            for link in self._costs.boundaries
            for kind in MessageKind
        ]
        return max(*stages_ns, *lines_ns, 0)

    def run(self, orders: CellOrders) -> CellRun | None:
        """Run the orders for some iterations: each action starts as soon as it can. Return None if they deadlock."""
        return _Run(self._costs, orders, self._shared, False).result()

    def critical_path(self, orders: CellOrders) -> tuple[tuple[int, int], ...]:
        """Return the critical path of the last two iterations of the run, empty if the orders deadlock.

        Each entry, the last one first, could not start before the one after it had ended: of an action the stage's
        index in ``CellOrders.stages`` and its position in the order, of a transfer over a shared line the line's index,
        counted from -1 down, and its position in the turns.
        """
        run = _Run(self._costs, orders, self._shared, True)
        return () if run.result() is None else run.path()

    def is_whole(self, stage: int, order: Order) -> bool:
        """Return whether each microbatch goes through its kinds in order, within the stage's memory bound."""
        return is_whole(self._shape, stage, order)


class _Run:
    """One run of the orders of a cell.

    A node is an action or a transfer that has had its time: the node before which it could not start, and its place.
    There are nodes only if the run is ``traced``, which takes longer.
    """

    def __init__(self, costs: CellCosts, orders: CellOrders, lines: tuple[Direction, ...], traced: bool) -> None:
        self._costs, self._traced, self._blocks = costs, traced, costs.sends_block
        self._nodes: list[tuple[int, int, int]] = []
        self._begun = self._end = 0
        self._count = count = costs.shape.stages
        durations_ns = costs.durations_ns
        self._stages: list[_Stage] = []
        for index, order in enumerate(orders.stages):
            own_ns = [durations_ns[kind][index % count] for kind in _NUMBERS]
            stage = _Stage([_NUMBERS[kind] for kind in order], own_ns, [None] * len(_NUMBERS), [None] * len(_NUMBERS))
            if index % count:
                stage.awaited[_FORWARD] = _Inbox()
            if index % count < count - 1:
                stage.awaited[_INPUT] = _Inbox()
            self._stages.append(stage)
        self._runnable: list[int] = []
        pipelines = len(self._stages) // count
        shared: dict[Direction, _Line] = {}
        for number, (kind, sender) in enumerate(lines):
            line = _line(costs, kind, sender, orders.turns[number], -1 - number)
            line.offered = [_Offered() for _ in range(pipelines)]
            shared[kind, sender] = line
        self._lines = list(shared.values())
        for index, stage in enumerate(self._stages):
            sender = index % count
            if sender < count - 1:
                direction = MessageKind.ACTIVATION, sender
                stage.sends[_FORWARD] = shared.get(direction) or _line(costs, *direction, None, _UNSHARED)
            if sender:
                direction = MessageKind.GRADIENT, sender
                stage.sends[_INPUT] = shared.get(direction) or _line(costs, *direction, None, _UNSHARED)

    def result(self) -> CellRun | None:
        """Run all iterations. Return None if a stage waits for ever."""
        count = self._count
        between_ns = self._costs.between_ns or (0,) * count
        ready_ns = [0] * len(self._stages)
        makespan_ns, growth_ns, longest = 0, [0], 0
        for iteration in range(RUN_ITERATIONS):
            if iteration == RUN_ITERATIONS - _TRACED:
                self._begun = len(self._nodes)
            if not self._iterate():
                return None
            ends_ns = [stage.free_ns for stage in self._stages]
            if iteration == 0:
                makespan_ns = max(stage.ended_ns for stage in self._stages)
            before_ns = ready_ns.copy()
            for number in range(count):
                alike = range(number, len(self._stages), count)
                latest = max(alike, key=ends_ns.__getitem__)
                for index in alike:
                    stage = self._stages[index]
                    ready_ns[index] = stage.free_ns = max(ends_ns[latest] + between_ns[number], stage.sent_ns)
                    stage.last = self._stages[latest].last
            growth_ns = [now - before for now, before in zip(ready_ns, before_ns, strict=True)]
            longest = max(range(len(growth_ns)), key=growth_ns.__getitem__)
        self._end = self._stages[longest].last
        return CellRun(growth_ns[longest], makespan_ns)

    def path(self) -> tuple[tuple[int, int], ...]:
        """Return the places of the nodes before the end of the last iterations, the last one first."""
        places: list[tuple[int, int]] = []
        node = self._end
        while node >= self._begun:
            node, index, position = self._nodes[node]
            places.append((index, position))
        return tuple(places)

    def _iterate(self) -> bool:
        stages = self._stages
        for stage in stages:
            stage.position = 0
            stage.waits = True
        for line in self._lines:
            line.position = 0
        runnable = self._runnable
        runnable.extend(range(len(stages) - 1, -1, -1))
        while runnable:
            index = runnable.pop()
            stage = stages[index]
            stage.waits = False
            self._advance(index, stage)
        return all(stage.position == len(stage.order) for stage in stages)

    def _advance(self, index: int, stage: _Stage) -> None:
        """Run the stage's actions until one needs a message that has not arrived, or waits for the stage's own."""
        order = stage.order
        while stage.position < len(order) and not stage.held:
            kind = order[stage.position]
            start_ns, cause = stage.free_ns, stage.last
            inbox = stage.awaited[kind]
            if inbox is not None:
                taken = inbox.taken
                if taken == len(inbox.arrivals_ns):
                    return
                inbox.taken = taken + 1
                arrival_ns = inbox.arrivals_ns[taken]
                if arrival_ns > start_ns:
                    start_ns, cause = arrival_ns, inbox.transfers[taken]
            stage.free_ns = stage.ended_ns = start_ns + stage.durations_ns[kind]
            if self._traced:
                stage.last = len(self._nodes)
                self._nodes.append((cause, index, stage.position))
            stage.position += 1
            line = stage.sends[kind]
            if line is not None:
                stage.held = self._blocks
                if line.turns is None:
                    self._send(line, index, kind, stage.free_ns, stage.last)
                else:
                    self._offer(line, line.turns, index, stage, kind)

    def _offer(self, line: _Line, turns: tuple[int, ...], index: int, stage: _Stage, kind: int) -> None:
        """Send what the stage has just computed in its turn, and what has waited for that."""
        pipeline, own = divmod(index, self._count)
        offered = line.offered[pipeline]
        offered.ready_ns.append(stage.free_ns)
        offered.computed.append(stage.last)
        while line.position < len(turns):
            pipeline = turns[line.position]
            waiting = line.offered[pipeline]
            sent = waiting.sent
            if sent == len(waiting.ready_ns):
                return
            waiting.sent = sent + 1
            sender = pipeline * self._count + own
            self._send(line, sender, kind, waiting.ready_ns[sent], waiting.computed[sent])
            line.position += 1
            if sender != index:
                self._wake(sender)

    def _send(self, line: _Line, sender: int, kind: int, ready_ns: int, computed: int) -> None:
        start_ns, cause = (line.free_ns, line.last) if line.free_ns > ready_ns else (ready_ns, computed)
        left_ns = line.free_ns = start_ns + line.occupancy_ns
        if self._traced:
            line.last = len(self._nodes)
            self._nodes.append((cause, line.place, line.position))
        receiver = sender + line.step
        inbox = self._stages[receiver].awaited[kind]
        if inbox is not None:
            inbox.arrivals_ns.append(left_ns + line.latency_ns)
            inbox.transfers.append(line.last)
        stage = self._stages[sender]
        stage.sent_ns = max(stage.sent_ns, left_ns)
        if stage.held:
            stage.held = False
            stage.free_ns, stage.last = max(stage.free_ns, left_ns), line.last
        self._wake(receiver)

    def _wake(self, index: int) -> None:
        stage = self._stages[index]
        if not stage.waits:
            stage.waits = True
            self._runnable.append(index)


def _line(costs: CellCosts, kind: MessageKind, sender: int, turns: tuple[int, ...] | None, place: int) -> _Line:
    there = kind is MessageKind.ACTIVATION
    link = costs.boundaries[sender if there else sender - 1].of(kind)
    return _Line(link.occupancy_ns, link.latency_ns, turns, place, 1 if there else -1)


def _numbered(order: Order) -> Iterator[Action]:
    done: dict[ActionKind, int] = {}
    for kind in order:
        yield known_action(kind, done.get(kind, 0))
        done[kind] = done.get(kind, 0) + 1


def _turns(pipelines: tuple[int, ...]) -> tuple[Turn, ...]:
    done: dict[int, int] = {}
    turns: list[Turn] = []
    for pipeline in pipelines:
        turns.append((pipeline, done.get(pipeline, 0)))
        done[pipeline] = done.get(pipeline, 0) + 1
    return tuple(turns)
