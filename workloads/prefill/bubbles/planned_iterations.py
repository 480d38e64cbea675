"""Compute the times of Atlas's plan: what each GPU of a cell does when, if everything takes what the profile says."""

from collections import deque

from workloads.message import MessageKind
from workloads.prefill.bubbles.bubble_forecast import IterationPlan, PlannedAction
from workloads.schedules.action import Action, ActionKind
from workloads.schedules.planning.cell_plan import BoundaryCosts, CellCosts, CellPlan

_Place = tuple[int, int]
"""Pipeline and stage."""


class _Boundary:
    """One direction of the links between two stages, of a pipeline or of the cell: transfers go one after the other."""

    def __init__(self, profile: BoundaryCosts, turns: deque[tuple[int, int]] | None) -> None:
        self._profile = profile
        self._turns = turns
        self._free_ns = 0
        self._made: dict[tuple[int, int], int] = {}

    def offer(self, turn: tuple[int, int], made_ns: int) -> list[tuple[tuple[int, int], int]]:
        """Enter a transfer that is made. Returns those that can be placed now, each with its arrival."""
        self._made[turn] = made_ns
        order = deque([turn]) if self._turns is None else self._turns
        arrivals = []
        while order and order[0] in self._made:
            first = order.popleft()
            self._free_ns = max(self._free_ns, self._made.pop(first)) + self._profile.occupancy_ns
            arrivals.append((first, self._free_ns + self._profile.latency_ns))
        return arrivals


def planned_iterations(plan: CellPlan, profile: CellCosts, after_ns: int) -> dict[_Place, IterationPlan]:
    """Return the plan of each GPU, by pipeline and stage, its times counted from its own first action.

    ``after_ns`` is from the last action's end to the next iteration's first action: sums and the optimizer. Raises
    ValueError if the plan is not one of this profile.
    """
    stages = profile.shape.stages
    durations = {
        ActionKind.FORWARD: profile.forward_ns,
        ActionKind.RECOMPUTE: profile.recompute_ns,
        ActionKind.BACKWARD: profile.backward_ns,
    }
    links: dict[tuple[MessageKind, int, int], _Boundary] = {}
    for kind, turns in ((MessageKind.ACTIVATION, plan.activation_turns), (MessageKind.GRADIENT, plan.gradient_turns)):
        for number, boundary in enumerate(profile.boundaries):
            shared = _Boundary(boundary, deque(turns[number])) if boundary.shared else None
            for pipeline in range(profile.pipelines):
                links[kind, number, pipeline] = shared or _Boundary(boundary, None)
    left = {
        (pipeline, stage): deque(order)
        for pipeline, orders in enumerate(plan.orders)
        for stage, order in enumerate(orders)
    }
    done: dict[_Place, list[PlannedAction]] = {place: [] for place in left}
    there_ns: dict[tuple[_Place, MessageKind, int], int] = {}
    asked = deque(left)
    while asked:
        place = asked.popleft()
        pipeline, stage = place
        while left[place]:
            action = left[place][0]
            awaited = _awaited(action, stage, stages)
            arrival_ns = 0 if awaited is None else there_ns.get((place, awaited, action.microbatch))
            if arrival_ns is None:
                break
            left[place].popleft()
            start_ns = max(arrival_ns, done[place][-1].end_ns if done[place] else 0)
            end_ns = start_ns + durations[action.kind][stage]
            done[place].append(PlannedAction((action.kind.value, action.microbatch), start_ns, end_ns))
            sent = _sent(action, stage, stages)
            if sent is None:
                continue
            forward = sent is MessageKind.ACTIVATION
            link = links[sent, stage if forward else stage - 1, pipeline]
            for (mate, microbatch), at_ns in link.offer((pipeline, action.microbatch), end_ns):
                receiver = mate, stage + 1 if forward else stage - 1
                there_ns[receiver, sent, microbatch] = at_ns
                asked.append(receiver)
    if any(left.values()):
        raise ValueError("plan: its orders do not come to an end under this profile")
    period_ns = max(actions[-1].end_ns for actions in done.values()) + after_ns
    return {place: IterationPlan(_from_the_first(actions), period_ns) for place, actions in done.items()}


def _awaited(action: Action, stage: int, stages: int) -> MessageKind | None:
    if action.kind is ActionKind.FORWARD and stage > 0:
        return MessageKind.ACTIVATION
    return MessageKind.GRADIENT if action.kind is ActionKind.BACKWARD and stage < stages - 1 else None


def _sent(action: Action, stage: int, stages: int) -> MessageKind | None:
    if action.kind is ActionKind.FORWARD and stage < stages - 1:
        return MessageKind.ACTIVATION
    return MessageKind.GRADIENT if action.kind is ActionKind.BACKWARD and stage > 0 else None


def _from_the_first(actions: list[PlannedAction]) -> tuple[PlannedAction, ...]:
    anchor_ns = actions[0].start_ns
    return tuple(
        PlannedAction(action.key, action.start_ns - anchor_ns, action.end_ns - anchor_ns) for action in actions
    )
