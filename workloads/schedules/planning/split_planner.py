"""Simulate one pipeline whose backwards are split under a set of rules. The run is one candidate for the plan.

Whenever a stage is free it runs a ready backward (the recompute and the input-gradient part), or a ready forward, or
fills the time with a weight-gradient part. Every decision looks only at messages that are on their way, so that the run
itself shows that its orders come to an end. Times are integers: the same costs and rules give the same orders on every
machine.
"""

import heapq
from dataclasses import dataclass, field
from itertools import product

from wanbed.workloads.message import MessageKind
from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.planning.cell_plan import CellCosts
from wanbed.workloads.schedules.planning.stage_order import Order

Orders = tuple[Order, ...]
"""The order of each stage."""


@dataclass(frozen=True)
class SplitRules:
    """The rules of one simulated run.

    - ``fill``: a weight part may delay what is on its way by so many halves of its own time less than its whole: at 0
      it fills any gap, at 2 only a gap that it fits into.
    - ``forward``: a forward waits for a gradient that arrives within so many halves of the forward's time.
    - ``release``: where the memory bound holds a forward back, weight parts go before backwards, to release memory.
    """

    fill: int = 0
    forward: int = 0
    release: bool = False


@dataclass(slots=True)
class _Stage:
    """One stage: how many of its actions have started, and the arrivals of messages by microbatch."""

    bound: int
    free_ns: int = 0
    forwards: int = 0
    recomputes: int = 0
    inputs: int = 0
    weights: int = 0
    activations_ns: list[int] = field(default_factory=list)
    gradients_ns: list[int] = field(default_factory=list)
    order: list[ActionKind] = field(default_factory=list)


class SplitSimulation:
    """The simulation of one iteration of one pipeline. Call ``run`` once."""

    def __init__(self, costs: CellCosts, rules: SplitRules) -> None:
        self._costs, self._rules, shape = costs, rules, costs.shape
        self._microbatches, self._last = shape.microbatches, shape.stages - 1
        self._durations = costs.durations_ns
        self._stages = [_Stage(shape.most_in_flight(stage)) for stage in range(shape.stages)]
        self._stages[0].activations_ns = [0] * shape.microbatches
        self._links_free_ns: dict[tuple[MessageKind, int], int] = {}
        self._events = [(0, stage) for stage in range(shape.stages)]

    def run(self) -> Orders:
        """Simulate until every stage is complete. Return the order of each."""
        events = self._events
        while events:
            now_ns, number = heapq.heappop(events)
            stage = self._stages[number]
            if stage.free_ns > now_ns:
                continue
            kind, wake_ns = self._choose(number, stage, now_ns)
            if kind is not None:
                self._start(number, stage, kind, now_ns)
            elif wake_ns is not None:
                heapq.heappush(events, (wake_ns, number))
        return tuple(tuple(stage.order) for stage in self._stages)

    def _start(self, number: int, stage: _Stage, kind: ActionKind, now_ns: int) -> None:
        end_ns = stage.free_ns = now_ns + self._durations[kind][number]
        stage.order.append(kind)
        if kind is ActionKind.FORWARD:
            stage.forwards += 1
            if number < self._last:
                stage.free_ns = self._send(MessageKind.ACTIVATION, number, number + 1, end_ns)
        elif kind is ActionKind.RECOMPUTE:
            stage.recomputes += 1
        elif kind is ActionKind.BACKWARD_WEIGHT:
            stage.weights += 1
        else:
            stage.inputs += 1
            if number:
                stage.free_ns = self._send(MessageKind.GRADIENT, number, number - 1, end_ns)
        heapq.heappush(self._events, (stage.free_ns, number))

    def _send(self, kind: MessageKind, number: int, to: int, ready_ns: int) -> int:
        """Send what is ready then. Return when the sender is free again."""
        link = self._costs.boundaries[min(number, to)].of(kind)
        # Of pipelines that share the links and run in step, each has its turn once.
        occupancy_ns = link.occupancy_ns * (self._costs.pipelines if link.shared else 1)
        left_ns = max(self._links_free_ns.get((kind, number), 0), ready_ns) + occupancy_ns
        self._links_free_ns[kind, number] = left_ns
        receiver = self._stages[to]
        arrivals_ns = receiver.activations_ns if kind is MessageKind.ACTIVATION else receiver.gradients_ns
        arrivals_ns.append(left_ns + link.latency_ns)
        # The receiver looks again now, since it knows more, and when the message is there.
        heapq.heappush(self._events, (ready_ns, to))
        heapq.heappush(self._events, (left_ns + link.latency_ns, to))
        return left_ns if self._costs.sends_block else ready_ns

    def _choose(self, number: int, stage: _Stage, now_ns: int) -> tuple[ActionKind | None, int | None]:
        """Return the kind of the action that a free stage starts now; otherwise when it looks again, if known."""
        rules, forward_ns = self._rules, self._durations[ActionKind.FORWARD][number]
        backward, backward_at_ns = self._backward(number, stage, now_ns)
        waiting = stage.forwards < min(self._microbatches, len(stage.activations_ns))
        full = stage.forwards - stage.weights >= stage.bound
        forward_at_ns = stage.activations_ns[stage.forwards] if waiting and not full else None
        pending = stage.inputs > stage.weights
        if rules.release and pending and waiting and full:
            return ActionKind.BACKWARD_WEIGHT, None
        if backward_at_ns is not None and backward_at_ns <= now_ns:
            return backward, None
        if forward_at_ns is not None and forward_at_ns <= now_ns:
            if backward_at_ns is None or 2 * (backward_at_ns - now_ns) >= rules.forward * forward_ns:
                return ActionKind.FORWARD, None
            forward_at_ns = None
        next_ns = min((each for each in (backward_at_ns, forward_at_ns) if each is not None), default=None)
        if pending:
            weight_ns = self._durations[ActionKind.BACKWARD_WEIGHT][number]
            if next_ns is None or 2 * (next_ns - now_ns) >= rules.fill * weight_ns or (waiting and full):
                return ActionKind.BACKWARD_WEIGHT, None
        elif backward is ActionKind.RECOMPUTE:
            recompute_ns = self._durations[backward][number]
            if next_ns is None or next_ns == backward_at_ns or next_ns - now_ns >= recompute_ns:
                return backward, None
        return None, next_ns

    def _backward(self, number: int, stage: _Stage, now_ns: int) -> tuple[ActionKind, int | None]:
        """Return the next action of the oldest backward, and when it may start; None if that is not known.

        A recompute may start so early that it ends by the time its gradient arrives.
        """
        oldest = stage.inputs
        if oldest == stage.forwards:
            return ActionKind.BACKWARD_INPUT, None
        at_ns: int | None = now_ns
        if number < self._last:
            at_ns = stage.gradients_ns[oldest] if oldest < len(stage.gradients_ns) else None
        if self._costs.shape.recomputes(number) and stage.recomputes == oldest:
            recompute_ns = self._durations[ActionKind.RECOMPUTE][number]
            return ActionKind.RECOMPUTE, None if at_ns is None else max(now_ns, at_ns - recompute_ns)
        return ActionKind.BACKWARD_INPUT, at_ns


RULES = tuple(
    SplitRules(fill, forward, release) for fill, forward, release in product((0, 1, 2), (0, 1, 2), (False, True))
)
