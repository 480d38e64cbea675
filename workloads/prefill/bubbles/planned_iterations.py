"""Compute when each GPU of a DP-cell runs which action by Atlas's plan, if all stage and boundary costs hold."""

from collections import deque

from wanbed.workloads.message import MessageKind
from wanbed.workloads.prefill.bubbles.bubble_forecast import IterationPlan, PlannedAction
from wanbed.workloads.schedules.action import TAKES_GRADIENT, Action, ActionKind
from wanbed.workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts, CellPlan

_Place = tuple[int, int]
"""Pipeline and stage."""


class _Boundary:
    """One direction of a stage boundary, of one pipeline or shared by the DP-cell. Transfers are serialized."""

    def __init__(self, costs: BoundaryCosts, turns: deque[tuple[int, int]] | None) -> None:
        self._costs = costs
        self._turns = turns
        self._free_ns = 0
        self._ready: dict[tuple[int, int], int] = {}

    def offer(self, turn: tuple[int, int], ready_ns: int) -> list[tuple[tuple[int, int], int, int]]:
        """Queue a transfer that is ready to be sent. Return every transfer whose turn has come.

        With each come the time at which it has left, and at which it has arrived.
        """
        self._ready[turn] = ready_ns
        order = deque([turn]) if self._turns is None else self._turns
        arrivals = []
        while order and order[0] in self._ready:
            first = order.popleft()
            self._free_ns = max(self._free_ns, self._ready.pop(first)) + self._costs.occupancy_ns
            arrivals.append((first, self._free_ns, self._free_ns + self._costs.latency_ns))
        return arrivals


def planned_iterations(plan: CellPlan, costs: CellCosts, after_ns: int) -> dict[_Place, IterationPlan]:
    """Return the iteration plan of each GPU, by pipeline and stage. Times count from the GPU's own first action.

    ``after_ns`` is the time from the last action's end to the next iteration's first action: the all-reduces and the
    optimizer. Raises ValueError if the plan's orders deadlock under these costs.
    """
    stages = costs.shape.stages
    durations = costs.durations_ns
    links: dict[tuple[MessageKind, int, int], _Boundary] = {}
    for kind, turns in ((MessageKind.ACTIVATION, plan.activation_turns), (MessageKind.GRADIENT, plan.gradient_turns)):
        for number, boundary in enumerate(costs.boundaries):
            own = boundary.of(kind)
            shared = _Boundary(own, deque(turns[number])) if boundary.shared else None
            for pipeline in range(costs.pipelines):
                links[kind, number, pipeline] = shared or _Boundary(own, None)
    remaining = {
        (pipeline, stage): deque(order)
        for pipeline, orders in enumerate(plan.orders)
        for stage, order in enumerate(orders)
    }
    done: dict[_Place, list[PlannedAction]] = {place: [] for place in remaining}
    arrivals_ns: dict[tuple[_Place, MessageKind, int], int] = {}
    # None while a place that sends is held until its transfer has left, else when it was.
    released_ns: dict[_Place, int | None] = dict.fromkeys(remaining, 0)
    pending = deque(remaining)
    while pending:
        place = pending.popleft()
        pipeline, stage = place
        while remaining[place] and (free_ns := released_ns[place]) is not None:
            action = remaining[place][0]
            awaited = _awaited(action, stage, stages)
            arrival_ns = 0 if awaited is None else arrivals_ns.get((place, awaited, action.microbatch))
            if arrival_ns is None:
                break
            remaining[place].popleft()
            start_ns = max(arrival_ns, free_ns, done[place][-1].end_ns if done[place] else 0)
            end_ns = start_ns + durations[action.kind][stage]
            done[place].append(PlannedAction((action.kind.value, action.microbatch), start_ns, end_ns))
            sent = _sent(action, stage, stages)
            if sent is None:
                continue
            forward = sent is MessageKind.ACTIVATION
            link = links[sent, stage if forward else stage - 1, pipeline]
            if costs.sends_block:
                released_ns[place] = None
            for (sender, microbatch), left_ns, at_ns in link.offer((pipeline, action.microbatch), end_ns):
                receiver = sender, stage + 1 if forward else stage - 1
                arrivals_ns[receiver, sent, microbatch] = at_ns
                pending.append(receiver)
                if costs.sends_block:
                    released_ns[sender, stage] = left_ns
                    pending.append((sender, stage))
    if any(remaining.values()):
        raise ValueError("plan: its orders do not come to an end under these costs")
    period_ns = max(actions[-1].end_ns for actions in done.values()) + after_ns
    return {place: IterationPlan(_from_the_first(actions), period_ns) for place, actions in done.items()}


def _awaited(action: Action, stage: int, stages: int) -> MessageKind | None:
    if action.kind is ActionKind.FORWARD and stage > 0:
        return MessageKind.ACTIVATION
    return MessageKind.GRADIENT if action.kind in TAKES_GRADIENT and stage < stages - 1 else None


def _sent(action: Action, stage: int, stages: int) -> MessageKind | None:
    if action.kind is ActionKind.FORWARD and stage < stages - 1:
        return MessageKind.ACTIVATION
    return MessageKind.GRADIENT if action.kind in TAKES_GRADIENT and stage > 0 else None


def _from_the_first(actions: list[PlannedAction]) -> tuple[PlannedAction, ...]:
    anchor_ns = actions[0].start_ns
    return tuple(
        PlannedAction(action.key, action.start_ns - anchor_ns, action.end_ns - anchor_ns) for action in actions
    )
