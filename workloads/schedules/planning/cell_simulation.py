"""Simulate one DP-cell under one set of rules. The run is one candidate for the plan.

Events are handled in the order of their times. After all events of one instant, first the links decide on their next
transfer, then the GPUs on their next action, each in a fixed order. Times are integers, so the same costs and rules
give the same plan on every machine.

The microbatches of a pipeline have equal costs, so they keep their order in every queue. A GPU's state is therefore a
few counts, and it decides only the kind of its next action.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from wanbed.workloads.message import MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind, known_action
from wanbed.workloads.schedules.planning.cell_plan import CellCosts, CellPlan, Turn


class TurnRule(Enum):
    """The rule that selects which of the transfers waiting for a link goes first."""

    FIRST_COME = "first-come"
    MICROBATCH = "microbatch"
    STARVING = "starving"


@dataclass(frozen=True)
class PlanRules:
    """The rules of one simulated run.

    ``patience`` decides between a ready forward and the recompute or backward whose gradient is on its way. The forward
    goes first if it delays the other by at most ``patience`` halves of the forward's time. None: the forward always
    goes first, as in Varuna. Whatever the patience, a GPU with nothing else to do recomputes the oldest microbatch, at
    most one ahead. If it waited until just before the gradient, a recompute that fits into idle time would delay later
    work.
    """

    turn_rule: TurnRule
    patience: int | None


@dataclass(slots=True)
class _Gpu:
    """One stage of one pipeline.

    ``forwards``, ``recomputes`` and ``backwards`` count started actions; all have ended whenever the GPU is free.
    ``gradient_times`` are the expected arrivals of gradients, by microbatch.
    """

    number: int
    pipeline: int
    stage: int
    free: bool = True
    activations: int = 0
    gradients: int = 0
    forwards: int = 0
    recomputes: int = 0
    backwards: int = 0
    gradient_times: list[int] = field(default_factory=list)
    order: list[Action] = field(default_factory=list)


@dataclass(slots=True)
class _Waiting:
    """A transfer that is ready to start, and its ends. ``ticket`` numbers transfers in the order they got ready."""

    ticket: int
    pipeline: int
    microbatch: int
    sender: _Gpu
    receiver: _Gpu


@dataclass(slots=True)
class _Link:
    """One direction of a boundary: of the whole DP-cell where it is shared, otherwise of one pipeline."""

    number: int
    kind: MessageKind
    latency_ns: int
    occupancy_ns: int
    free_ns: int = 0
    waiting: list[_Waiting] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)


def _backlog(waiting: _Waiting, kind: MessageKind) -> int:
    gpu = waiting.receiver
    if kind is MessageKind.ACTIVATION:
        return gpu.activations - gpu.forwards
    return gpu.gradients - gpu.backwards


_TURN_KEYS: dict[TurnRule, Callable[[_Waiting, MessageKind], tuple[int, ...]]] = {
    TurnRule.FIRST_COME: lambda waiting, _: (waiting.ticket,),
    TurnRule.MICROBATCH: lambda waiting, _: (waiting.microbatch, waiting.pipeline),
    TurnRule.STARVING: lambda waiting, kind: (_backlog(waiting, kind), waiting.microbatch, waiting.pipeline),
}


class CellSimulation:
    """The simulation of one iteration of a DP-cell. Call ``run`` once."""

    def __init__(self, costs: CellCosts, rules: PlanRules) -> None:
        self._costs = costs
        self._patience = rules.patience
        self._turn_key = _TURN_KEYS[rules.turn_rule]
        shape = costs.shape
        self._last = shape.stages - 1
        self._recomputes = [shape.recomputes(stage) and stage < self._last for stage in range(shape.stages)]
        self._bounds = [shape.most_in_flight(stage) for stage in range(shape.stages)]
        places = [(pipeline, stage) for pipeline in range(costs.pipelines) for stage in range(shape.stages)]
        self._gpus = [_Gpu(number, *place) for number, place in enumerate(places)]
        self._links: list[_Link] = []
        self._activation_links = [self._links_at(boundary, MessageKind.ACTIVATION) for boundary in range(self._last)]
        self._gradient_links = [self._links_at(boundary, MessageKind.GRADIENT) for boundary in range(self._last)]
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._gpus_to_serve: set[int] = set()
        self._links_to_serve: set[int] = set()
        self._tickets = 0
        self._now_ns = 0

    def run(self) -> CellPlan:
        """Simulate until no event is left. Return the run as a plan, whose period is its makespan: it runs alone."""
        self._gpus_to_serve.update(gpu.number for gpu in self._gpus if gpu.stage == 0)
        makespan_ns = 0
        while True:
            # Decisions may cause more events at this same instant.
            for number in sorted(self._links_to_serve):
                self._start_transfer(self._links[number])
            self._links_to_serve.clear()
            for number in sorted(self._gpus_to_serve):
                self._start_action(self._gpus[number])
            self._gpus_to_serve.clear()
            if not self._events:
                break
            self._now_ns = self._events[0][0]
            while self._events and self._events[0][0] == self._now_ns:
                heapq.heappop(self._events)[2]()
            makespan_ns = self._now_ns
        return self._plan(makespan_ns)

    def _plan(self, makespan_ns: int) -> CellPlan:
        stages = self._last + 1
        orders = [tuple(gpu.order) for gpu in self._gpus]

        def turns(links: list[list[_Link]]) -> tuple[tuple[Turn, ...], ...]:
            shared = [boundary.shared for boundary in self._costs.boundaries]
            return tuple(tuple(own[0].turns) if takes else () for own, takes in zip(links, shared, strict=True))

        return CellPlan(
            tuple(tuple(orders[first : first + stages]) for first in range(0, len(orders), stages)),
            turns(self._activation_links),
            turns(self._gradient_links),
            makespan_ns,
            makespan_ns,
        )

    def _links_at(self, boundary: int, kind: MessageKind) -> list[_Link]:
        costs, pipelines = self._costs.boundaries[boundary].of(kind), self._costs.pipelines
        links = [
            _Link(len(self._links) + index, kind, costs.latency_ns, costs.occupancy_ns)
            for index in range(1 if costs.shared else pipelines)
        ]
        self._links += links
        return links * pipelines if costs.shared else links

    def _at(self, time_ns: int, happens: Callable[[], None]) -> None:
        self._tickets += 1
        heapq.heappush(self._events, (time_ns, self._tickets, happens))

    def _start_action(self, gpu: _Gpu) -> None:
        kind = self._choose(gpu) if gpu.free else None
        if kind is None:
            return
        costs, stage = self._costs, gpu.stage
        if kind is ActionKind.FORWARD:
            duration_ns, microbatch = costs.forward_ns[stage], gpu.forwards
            gpu.forwards += 1
        elif kind is ActionKind.RECOMPUTE:
            duration_ns, microbatch = costs.recompute_ns[stage], gpu.recomputes
            gpu.recomputes += 1
        else:
            duration_ns, microbatch = costs.backward_ns[stage], gpu.backwards
            gpu.backwards += 1
        end_ns = self._now_ns + duration_ns
        if kind is ActionKind.BACKWARD and stage > 0:
            # The earliest possible arrival of its gradient; corrected when the transfer starts.
            link = self._gradient_links[stage - 1][gpu.pipeline]
            arrival_ns = max(end_ns, link.free_ns) + link.occupancy_ns + link.latency_ns
            self._gpus[gpu.number - 1].gradient_times.append(arrival_ns)
        action = known_action(kind, microbatch)
        gpu.order.append(action)
        gpu.free = False
        self._at(end_ns, partial(self._end_action, gpu, action))

    def _end_action(self, gpu: _Gpu, action: Action) -> None:
        if action.kind is ActionKind.FORWARD and gpu.stage < self._last:
            link, receiver = self._activation_links[gpu.stage][gpu.pipeline], self._gpus[gpu.number + 1]
        elif action.kind is ActionKind.BACKWARD and gpu.stage > 0:
            link, receiver = self._gradient_links[gpu.stage - 1][gpu.pipeline], self._gpus[gpu.number - 1]
        else:
            self._release(gpu)
            return
        if not self._costs.sends_block:
            self._release(gpu)
        self._tickets += 1
        link.waiting.append(_Waiting(self._tickets, gpu.pipeline, action.microbatch, gpu, receiver))
        self._links_to_serve.add(link.number)

    def _release(self, gpu: _Gpu) -> None:
        gpu.free = True
        self._gpus_to_serve.add(gpu.number)

    def _start_transfer(self, link: _Link) -> None:
        if not link.waiting or link.free_ns > self._now_ns:
            return
        transfer = link.waiting[0]
        if len(link.waiting) > 1:
            transfer = min(link.waiting, key=lambda waiting: self._turn_key(waiting, link.kind))
        link.waiting.remove(transfer)
        link.turns.append((transfer.pipeline, transfer.microbatch))
        link.free_ns = self._now_ns + link.occupancy_ns
        arrival_ns = link.free_ns + link.latency_ns
        if link.kind is MessageKind.GRADIENT:
            transfer.receiver.gradient_times[transfer.microbatch] = arrival_ns
            self._gpus_to_serve.add(transfer.receiver.number)
        self._at(link.free_ns, partial(self._links_to_serve.add, link.number))
        if self._costs.sends_block:
            self._at(link.free_ns, partial(self._release, transfer.sender))
        self._at(arrival_ns, partial(self._arrive, transfer.receiver, link.kind))

    def _arrive(self, gpu: _Gpu, kind: MessageKind) -> None:
        if kind is MessageKind.ACTIVATION:
            gpu.activations += 1
        else:
            gpu.gradients += 1
        self._gpus_to_serve.add(gpu.number)

    def _choose(self, gpu: _Gpu) -> ActionKind | None:
        """Return the kind of the action that a free GPU starts now; None to wait for a message."""
        stage, oldest = gpu.stage, gpu.backwards
        recomputed = not self._recomputes[stage] or gpu.recomputes > oldest
        held = gpu.forwards - oldest
        if held and (stage == self._last or gpu.gradients > oldest):
            return ActionKind.BACKWARD if recomputed else ActionKind.RECOMPUTE
        forward_ready = (
            gpu.forwards < self._costs.shape.microbatches
            and (stage == 0 or gpu.activations > gpu.forwards)
            and held < self._bounds[stage]
        )
        if forward_ready and (not held or self._may_go_first(gpu, recomputed=recomputed)):
            return ActionKind.FORWARD
        return ActionKind.RECOMPUTE if held and not recomputed else None

    def _may_go_first(self, gpu: _Gpu, *, recomputed: bool) -> bool:
        """Return whether a ready forward goes before the oldest microbatch's recompute or backward."""
        if self._patience is None or len(gpu.gradient_times) <= gpu.backwards:
            return True
        forward_ns = self._costs.forward_ns[gpu.stage]
        needed_ns = gpu.gradient_times[gpu.backwards]
        if not recomputed:
            needed_ns -= self._costs.recompute_ns[gpu.stage]
        return self._now_ns + forward_ns <= needed_ns + forward_ns * self._patience // 2
