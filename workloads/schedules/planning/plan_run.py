"""Run a plan strictly: simulate iterations of one DP-cell that follow its orders and turns over links with a state.

Orders and turns leave nothing to decide, so no event queue is needed: each stage advances until a message is missing,
and each link sends its transfers in their order.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from wanbed.workloads.message import MessageKind
from wanbed.workloads.schedules.action import TAKES_GRADIENT, ActionKind
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts, CellPlan, LinkState, Turn

Times = tuple[tuple[int, int], ...]
"""Start and end of each action of a stage, in the order of the plan."""

_COLD_ITERATIONS, _WARM_ITERATIONS = 1, 2
PRICED_ITERATIONS = _COLD_ITERATIONS + _WARM_ITERATIONS
"""The iterations that are run for one price."""


@dataclass(slots=True)
class _RateLink:
    """Links whose transfers all take the same time."""

    costs: BoundaryCosts
    free_ns: int = 0

    def send(self, ready_ns: int) -> tuple[int, int]:
        self.free_ns = max(self.free_ns, ready_ns) + self.costs.occupancy_ns
        return self.free_ns, self.free_ns + self.costs.latency_ns


@dataclass(slots=True)
class _Link:
    """One direction of a boundary: of the whole DP-cell where it has ``turns``, otherwise of one pipeline.

    ``sender`` is the stage that sends ``kind`` over it. ``transfers_ns`` are the durations of this iteration's
    transfers, each from the first byte to the arrival of the last.
    """

    kind: MessageKind
    sender: int
    state: LinkState
    turns: Sequence[Turn] | None
    position: int = 0
    free_ns: int = 0
    transfers_ns: list[int] = field(default_factory=list)
    offered_ns: dict[Turn, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Stage:
    """One stage of one pipeline.

    ``steps`` has one entry per action: the message kind it sends, the one it needs, its duration in ns, its microbatch.
    ``held`` is true while sends block and the last one has not left, which it does at ``released_ns``.
    """

    number: int
    steps: list[tuple[MessageKind | None, MessageKind | None, int, int]]
    free_ns: int = 0
    sent_ns: int = 0
    held: bool = False
    released_ns: int = 0
    times: list[tuple[int, int]] = field(default_factory=list)
    arrived_ns: dict[tuple[MessageKind, int], int] = field(default_factory=dict)


class PlanRun:
    """Successive iterations of a DP-cell, as ranks run them: without a barrier, over the same links."""

    def __init__(self, plan: CellPlan, costs: CellCosts) -> None:
        self._costs = costs
        self._stages = stages = costs.shape.stages
        durations = costs.durations_ns
        self._cell: list[_Stage] = []
        for orders in plan.orders:
            for stage, order in enumerate(orders):
                of_kind = {
                    kind: (_sent(kind, stage, stages), _needed(kind, stage, stages), duration[stage])
                    for kind, duration in durations.items()
                }
                steps = [(*of_kind[action.kind], action.microbatch) for action in order]
                self._cell.append(_Stage(len(self._cell), steps))
        self._links: dict[tuple[MessageKind, int, int], _Link] = {}
        for kind, turns in (
            (MessageKind.ACTIVATION, plan.activation_turns),
            (MessageKind.GRADIENT, plan.gradient_turns),
        ):
            for boundary, links in enumerate(costs.boundaries):
                sender = boundary if kind is MessageKind.ACTIVATION else boundary + 1
                shared = _Link(kind, sender, _opened(links.of(kind)), turns[boundary]) if links.shared else None
                for pipeline in range(costs.pipelines):
                    own = shared or _Link(kind, sender, _opened(links.of(kind)), None)
                    self._links[kind, sender, pipeline] = own

    def iterate(self) -> dict[tuple[int, int], Times]:
        """Run the next iteration. Return the times of each stage's actions, by pipeline and stage.

        Raise ValueError if the plan deadlocks.
        """
        for each in self._cell:
            each.times, each.sent_ns = [], 0
            each.arrived_ns.clear()
        for link in self._links.values():
            link.position = 0
            link.transfers_ns = []
        runnable = deque(self._cell)
        while runnable:
            self._advance(runnable.popleft(), runnable)
        if any(len(each.times) < len(each.steps) for each in self._cell):
            raise ValueError("plan: its orders do not come to an end under these costs")
        self._end_iteration()
        return {divmod(each.number, self._stages): tuple(each.times) for each in self._cell}

    def transfers_ns(self, boundary: int) -> list[int]:
        """Return the time of each transfer over that boundary in the last iteration, in both directions."""
        links = {id(link): link for key, link in self._links.items() if key[:2] in _directions(boundary)}
        return [taken_ns for link in links.values() for taken_ns in link.transfers_ns]

    def _advance(self, each: _Stage, runnable: deque[_Stage]) -> None:
        """Run the stage's actions until one needs a message that has not arrived, or waits for the stage's own."""
        pipeline, stage = divmod(each.number, self._stages)
        now_ns = each.times[-1][1] if each.times else each.free_ns
        while len(each.times) < len(each.steps) and not each.held:
            now_ns = max(now_ns, each.released_ns)
            sent, needed, duration_ns, microbatch = each.steps[len(each.times)]
            if needed is not None:
                arrived_ns = each.arrived_ns.get((needed, microbatch))
                if arrived_ns is None:
                    return
                now_ns = max(now_ns, arrived_ns)
            each.times.append((now_ns, now_ns + duration_ns))
            now_ns += duration_ns
            if sent is not None:
                each.held = self._costs.sends_block
                self._offer(self._links[sent, stage, pipeline], (pipeline, microbatch), now_ns, runnable)

    def _offer(self, link: _Link, turn: Turn, ready_ns: int, runnable: deque[_Stage]) -> None:
        """Send a ready transfer in its turn, and those that waited for it. Add who may go on to ``runnable``."""
        if link.turns is None:
            runnable.extend(self._send(link, turn, ready_ns))
            return
        link.offered_ns[turn] = ready_ns
        while link.position < len(link.turns) and link.turns[link.position] in link.offered_ns:
            following = link.turns[link.position]
            link.position += 1
            runnable.extend(self._send(link, following, link.offered_ns.pop(following)))

    def _send(self, link: _Link, turn: Turn, ready_ns: int) -> list[_Stage]:
        """Send a transfer. Return the stage that receives it, and the one that sends it if that was held."""
        pipeline, microbatch = turn
        left_ns, arrived_ns = link.state.send(ready_ns)
        link.transfers_ns.append(arrived_ns - max(ready_ns, link.free_ns))
        link.free_ns = left_ns
        sender = self._cell[pipeline * self._stages + link.sender]
        sender.sent_ns = max(sender.sent_ns, left_ns)
        receiver = self._cell[sender.number + (1 if link.kind is MessageKind.ACTIVATION else -1)]
        receiver.arrived_ns[link.kind, microbatch] = arrived_ns
        if not sender.held:
            return [receiver]
        sender.held, sender.released_ns = False, left_ns
        return [receiver, sender]

    def _end_iteration(self) -> None:
        """Set when each stage may begin the next iteration: after all-reduce and optimizer, and once its sends left."""
        for stage in range(self._stages):
            replicas = self._cell[stage :: self._stages]
            ready_ns = max((max(each.times[-1][1], each.released_ns) for each in replicas if each.times), default=0)
            between_ns = self._costs.between_ns[stage] if self._costs.between_ns else 0
            for each in replicas:
                each.free_ns = max(ready_ns + between_ns, each.sent_ns)


def priced(plan: CellPlan, costs: CellCosts) -> CellPlan:
    """Return the plan with its period and its makespan under ``costs``.

    The period is the mean of two iterations after one. So is the makespan over links with a state, because the first
    iteration uses new connections; otherwise it is that of the first.
    """
    run = PlanRun(plan, costs)
    spans_ns = [_span_ns(run.iterate()) for _ in range(PRICED_ITERATIONS)]
    alone = spans_ns[_COLD_ITERATIONS:] if costs.has_state else spans_ns[:_COLD_ITERATIONS]
    period_ns = (spans_ns[-1][1] - spans_ns[_COLD_ITERATIONS - 1][1]) // _WARM_ITERATIONS
    makespan_ns = sum(end_ns - start_ns for start_ns, end_ns in alone) // len(alone)
    return replace(plan, period_ns=period_ns, makespan_ns=makespan_ns)


def shortest(plans: Sequence[CellPlan], costs: CellCosts) -> CellPlan:
    """Return the plan with the shortest period under ``costs``, priced; of equal periods, with the shorter makespan."""
    return min((priced(plan, costs) for plan in plans), key=lambda plan: (plan.period_ns, plan.makespan_ns))


def comes_to_an_end(plan: CellPlan, costs: CellCosts) -> bool:
    """Return whether no stage of the plan waits for ever."""
    try:
        PlanRun(plan, costs).iterate()
    except ValueError:
        return False
    return True


def _directions(boundary: int) -> tuple[tuple[MessageKind, int], tuple[MessageKind, int]]:
    return (MessageKind.ACTIVATION, boundary), (MessageKind.GRADIENT, boundary + 1)


def _span_ns(iteration: dict[tuple[int, int], Times]) -> tuple[int, int]:
    """Return the start of an iteration's first action and the end of its last."""
    stages = [times for times in iteration.values() if times]
    return min(times[0][0] for times in stages), max(times[-1][1] for times in stages)


def _opened(costs: BoundaryCosts) -> LinkState:
    return _RateLink(costs) if costs.links is None else costs.links.opened()


def _needed(kind: ActionKind, stage: int, stages: int) -> MessageKind | None:
    if kind is ActionKind.FORWARD and stage > 0:
        return MessageKind.ACTIVATION
    return MessageKind.GRADIENT if kind in TAKES_GRADIENT and stage < stages - 1 else None


def _sent(kind: ActionKind, stage: int, stages: int) -> MessageKind | None:
    if kind is ActionKind.FORWARD and stage < stages - 1:
        return MessageKind.ACTIVATION
    return MessageKind.GRADIENT if kind in TAKES_GRADIENT and stage > 0 else None
