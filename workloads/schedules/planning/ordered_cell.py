"""Run the orders and turns of a DP-cell whose backwards are split.

The turns of a line are a sequence of pipelines.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from wanbed.workloads.message import MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind, known_action
from wanbed.workloads.schedules.planning.cell_plan import CellCosts, CellPlan, Turn
from wanbed.workloads.schedules.planning.stage_order import Order, is_whole, split_kinds

Direction = tuple[MessageKind, int]
"""One direction of a boundary, by the stage that sends."""

_SENT = {
    ActionKind.FORWARD: (MessageKind.ACTIVATION, 1),
    ActionKind.BACKWARD_INPUT: (MessageKind.GRADIENT, -1),
}
"""The message that is sent after an action, and how many stages further."""

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
    """A run: its period, its makespan, and the critical path of its last two iterations.

    The period is the most that any stage takes from when it may begin one iteration until it may begin the next. The
    makespan is that of the first iteration. Each entry of ``path``, the last one first, could not start before the one
    after it had ended: of an action the stage's index in ``CellOrders.stages`` and its position in the order, of a
    transfer over a shared line the line's index, counted from -1 down, and its position in the turns.
    """

    period_ns: int
    makespan_ns: int
    path: tuple[tuple[int, int], ...]

    @property
    def length_ns(self) -> tuple[int, int]:
        """The times by which runs are compared: first of all the period."""
        return self.period_ns, self.makespan_ns


@dataclass(slots=True)
class _Line:
    """One direction of the links of a boundary. ``turns`` is None where one pipeline uses it alone.

    ``place`` stands for its transfers in a path.
    """

    occupancy_ns: int
    latency_ns: int
    turns: tuple[int, ...] | None
    place: int
    position: int = 0
    free_ns: int = 0
    last: int = -1
    offered: dict[int, deque[tuple[int, int]]] = field(default_factory=dict)


@dataclass(slots=True)
class _Stage:
    """One stage of one pipeline: what it has done of this iteration, and what has arrived for it, by kind of message.

    ``last`` is the node that came last, and ``held`` is true while sends block and the last one has not left.
    """

    order: Order
    durations_ns: dict[ActionKind, int]
    awaited: dict[ActionKind, deque[tuple[int, int]]]
    sends: dict[ActionKind, tuple[_Line, int]]
    position: int = 0
    free_ns: int = 0
    ended_ns: int = 0
    sent_ns: int = 0
    last: int = -1
    held: bool = False


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
        return _Run(self._costs, orders, self._shared).result()

    def is_whole(self, stage: int, order: Order) -> bool:
        """Return whether each microbatch goes through its kinds in order, within the stage's memory bound."""
        return is_whole(self._shape, stage, order)


class _Run:
    """One run of the orders of a cell.

    A node is an action or a transfer that has had its time: the node before which it could not start, and its place.
    """

    def __init__(self, costs: CellCosts, orders: CellOrders, lines: tuple[Direction, ...]) -> None:
        self._costs = costs
        self._nodes: list[tuple[int, int, int]] = []
        count, last = costs.shape.stages, costs.shape.stages - 1
        own = [{kind: duration_ns[stage] for kind, duration_ns in costs.durations_ns.items()} for stage in range(count)]
        self._stages = [
            _Stage(order, own[index % count], _awaited(index % count, last), {})
            for index, order in enumerate(orders.stages)
        ]
        shared = {
            (kind, sender): _line(costs, kind, sender, orders.turns[number], -1 - number)
            for number, (kind, sender) in enumerate(lines)
        }
        self._lines = list(shared.values())
        for index, stage in enumerate(self._stages):
            for computed, (kind, step) in _SENT.items():
                sender = index % count
                if 0 <= sender + step <= last:
                    line = shared.get((kind, sender)) or _line(costs, kind, sender, None, _UNSHARED)
                    stage.sends[computed] = line, index + step

    def result(self) -> CellRun | None:
        """Run all iterations. Return None if a stage waits for ever."""
        count = self._costs.shape.stages
        between_ns = self._costs.between_ns or (0,) * count
        ready_ns = [0] * len(self._stages)
        makespan_ns, growth_ns, longest, begun = 0, [0], 0, 0
        for iteration in range(RUN_ITERATIONS):
            if iteration == RUN_ITERATIONS - _TRACED:
                begun = len(self._nodes)
            if not self._iterate():
                return None
            ends_ns = [stage.free_ns for stage in self._stages]
            if iteration == 0:
                makespan_ns = max(stage.ended_ns for stage in self._stages)
            before_ns = ready_ns.copy()
            for number in range(count):
                alike = range(number, len(self._stages), count)
                latest = max(alike, key=lambda index: ends_ns[index])
                for index in alike:
                    stage = self._stages[index]
                    ready_ns[index] = stage.free_ns = max(ends_ns[latest] + between_ns[number], stage.sent_ns)
                    stage.last = self._stages[latest].last
            growth_ns = [now - before for now, before in zip(ready_ns, before_ns, strict=True)]
            longest = max(range(len(growth_ns)), key=lambda index: growth_ns[index])
        return CellRun(growth_ns[longest], makespan_ns, tuple(self._path(self._stages[longest].last, begun)))

    def _path(self, node: int, begun: int) -> Iterator[tuple[int, int]]:
        while node >= begun:
            node, index, position = self._nodes[node]
            yield index, position

    def _iterate(self) -> bool:
        stages = self._stages
        for stage in stages:
            stage.position = 0
        for line in self._lines:
            line.position = 0
        runnable = deque(range(len(stages)))
        while runnable:
            index = runnable.popleft()
            self._advance(index, stages[index], runnable)
        return all(stage.position == len(stage.order) for stage in stages)

    def _advance(self, index: int, stage: _Stage, runnable: deque[int]) -> None:
        """Run the stage's actions until one needs a message that has not arrived, or waits for the stage's own."""
        nodes, order = self._nodes, stage.order
        while stage.position < len(order) and not stage.held:
            kind = order[stage.position]
            start_ns, cause = stage.free_ns, stage.last
            arrivals = stage.awaited.get(kind)
            if arrivals is not None:
                if not arrivals:
                    return
                arrival_ns, transfer = arrivals.popleft()
                if arrival_ns > start_ns:
                    start_ns, cause = arrival_ns, transfer
            stage.free_ns = stage.ended_ns = start_ns + stage.durations_ns[kind]
            stage.last = len(nodes)
            nodes.append((cause, index, stage.position))
            stage.position += 1
            sent = stage.sends.get(kind)
            if sent is not None:
                self._offer(*sent, index, stage, runnable)

    def _offer(self, line: _Line, receiver: int, index: int, stage: _Stage, runnable: deque[int]) -> None:
        """Send what the stage has just computed in its turn, and what has waited for that."""
        stage.held = self._costs.sends_block
        if line.turns is None:
            self._send(line, receiver, index, stage.free_ns, stage.last)
            runnable.append(receiver)
            return
        count = self._costs.shape.stages
        line.offered.setdefault(index // count, deque()).append((stage.free_ns, stage.last))
        while line.position < len(line.turns):
            waiting = line.offered.get(line.turns[line.position])
            if not waiting:
                return
            sender = line.turns[line.position] * count + index % count
            self._send(line, sender + receiver - index, sender, *waiting.popleft())
            line.position += 1
            runnable.append(sender + receiver - index)
            if sender != index:
                runnable.append(sender)

    def _send(self, line: _Line, receiver: int, sender: int, ready_ns: int, computed: int) -> None:
        start_ns, cause = (line.free_ns, line.last) if line.free_ns > ready_ns else (ready_ns, computed)
        left_ns = line.free_ns = start_ns + line.occupancy_ns
        line.last = len(self._nodes)
        self._nodes.append((cause, line.place, line.position))
        taken = ActionKind.FORWARD if receiver > sender else ActionKind.BACKWARD_INPUT
        self._stages[receiver].awaited[taken].append((left_ns + line.latency_ns, line.last))
        stage = self._stages[sender]
        stage.sent_ns = max(stage.sent_ns, left_ns)
        if stage.held:
            stage.held = False
            stage.free_ns, stage.last = max(stage.free_ns, left_ns), line.last


def _line(costs: CellCosts, kind: MessageKind, sender: int, turns: tuple[int, ...] | None, place: int) -> _Line:
    link = costs.boundaries[sender if kind is MessageKind.ACTIVATION else sender - 1].of(kind)
    return _Line(link.occupancy_ns, link.latency_ns, turns, place)


def _awaited(stage: int, last: int) -> dict[ActionKind, deque[tuple[int, int]]]:
    taken = [ActionKind.FORWARD] if stage else []
    return {kind: deque() for kind in (*taken, *([ActionKind.BACKWARD_INPUT] if stage < last else []))}


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
