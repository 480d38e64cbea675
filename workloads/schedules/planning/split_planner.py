"""Plan a DP-cell with split backwards: simulate a pipeline under several rules, shorten the best runs, price them.

What counts is the period of training: a stage begins the next iteration when it has ended its own part of one, so that
the longest part of any stage decides, and not when the whole pipeline has ended.

Under a set of rules a stage decides whenever it is free: it runs a ready backward (the recompute and the input-gradient
part), or a ready forward, or fills the time with a weight-gradient part. Every decision looks only at messages that are
on their way, so that the run itself shows that its orders come to an end. Times are integers: the same costs and rules
give the same orders on every machine.

The best orders are then run strictly and shortened by small changes. Microbatches take turns in each kind of action, so
an order is a sequence of kinds. Only a change on the critical path (the chain of actions and transfers before the end
of the longest stage) can shorten a run: two actions of one stage that follow each other there change places, or an
action moves to before or after others of the stage.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product

from wanbed.workloads.message import MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.planning.cell_plan import CellCosts, CellPlan, Turn
from wanbed.workloads.schedules.planning.plan_run import shortest
from wanbed.workloads.schedules.planning.stage_order import Order, is_whole, moves
from wanbed.workloads.schedules.zero_bubble import ZeroBubble

Orders = tuple[Order, ...]
"""The order of each stage."""

Place = tuple[int, int]
"""A stage, and the position of an action in its order."""


@dataclass(frozen=True)
class StrictRun:
    """A run: its period, its makespan, and the critical path to the end of the stage whose part lasts longest.

    A stage's part lasts from its first action to when it may begin the next iteration, and the longest of them is the
    period: each iteration can follow that much after the one before. Each entry of ``path``, the last action first, is
    the place of an action that could not start before the action in front of it had ended.
    """

    period_ns: int
    makespan_ns: int
    path: tuple[Place, ...]

    @property
    def length_ns(self) -> tuple[int, int]:
        """The times by which runs are compared: first of all the period."""
        return self.period_ns, self.makespan_ns


class OrderedPipeline:
    """One pipeline whose stages follow orders."""

    def __init__(self, costs: CellCosts) -> None:
        self._costs, self._shape = costs, costs.shape
        self._durations = costs.durations_ns
        self._last = costs.shape.stages - 1
        self._ways = {
            (kind, sender): (
                link.of(kind).occupancy_ns * (costs.pipelines if link.shared else 1),
                link.of(kind).latency_ns,
            )
            for boundary, link in enumerate(costs.boundaries)
            for kind, sender in ((MessageKind.ACTIVATION, boundary), (MessageKind.GRADIENT, boundary + 1))
        }

    def run(self, orders: Orders) -> StrictRun | None:
        """Run the orders: each action starts as soon as it can. Return None if they deadlock."""
        stages = range(len(orders))
        ends_ns: list[list[int]] = [[] for _ in stages]
        free_ns = [0] * len(orders)
        causes: list[list[Place | None]] = [[] for _ in stages]
        arrivals: dict[tuple[MessageKind, int], list[tuple[int, Place]]] = {
            (kind, stage): [] for kind in MessageKind for stage in stages
        }
        taken = dict.fromkeys(arrivals, 0)
        left_ns = dict.fromkeys(arrivals, 0)
        runnable = list(stages)
        while runnable:
            stage = runnable.pop()
            own, order = ends_ns[stage], orders[stage]
            while len(own) < len(order):
                kind = order[len(own)]
                start_ns, cause = free_ns[stage], None
                awaited = self._awaited(kind, stage)
                if awaited is not None:
                    arrived = arrivals[awaited, stage]
                    if taken[awaited, stage] == len(arrived):
                        break
                    arrival_ns, sender = arrived[taken[awaited, stage]]
                    taken[awaited, stage] += 1
                    if arrival_ns > start_ns:
                        start_ns, cause = arrival_ns, sender
                end_ns = free_ns[stage] = start_ns + self._durations[kind][stage]
                sent = self._sent(kind, stage)
                if sent is not None:
                    to = stage + 1 if sent is MessageKind.ACTIVATION else stage - 1
                    occupancy_ns, latency_ns = self._ways[sent, stage]
                    left_ns[sent, stage] = max(left_ns[sent, stage], end_ns) + occupancy_ns
                    if self._costs.sends_block:
                        free_ns[stage] = left_ns[sent, stage]
                    arrivals[sent, to].append((left_ns[sent, stage] + latency_ns, (stage, len(own))))
                    runnable.append(to)
                own.append(end_ns)
                causes[stage].append(cause)
        if any(len(own) < len(order) for own, order in zip(ends_ns, orders, strict=True)):
            return None
        between_ns = self._costs.between_ns or (0,) * len(orders)
        makespan_ns = max(own[-1] for own in ends_ns)
        parts_ns = [
            free_ns[stage] + between_ns[stage] - (ends_ns[stage][0] - self._durations[order[0]][stage])
            for stage, order in enumerate(orders)
        ]
        longest = max(stages, key=lambda stage: parts_ns[stage])
        path = self._path(causes, (longest, len(orders[longest]) - 1))
        return StrictRun(parts_ns[longest], makespan_ns, tuple(path))

    def shortened(self, orders: Orders, most_runs: int) -> tuple[Orders, StrictRun]:
        """Return orders whose run is no longer, and that run, after at most ``most_runs`` further runs.

        Raise ValueError if the given orders deadlock.
        """
        best = self.run(orders)
        if best is None:
            raise ValueError("orders: they deadlock")
        runs = 0
        while True:
            for changed in self._changes(orders, best):
                if runs == most_runs:
                    return orders, best
                runs += 1
                run = self.run(changed)
                if run is not None and run.length_ns < best.length_ns:
                    orders, best = changed, run
                    break
            else:
                return orders, best

    def _changes(self, orders: Orders, run: StrictRun) -> Iterator[Orders]:
        """Yield the orders with one change on the critical path of their run, within the memory bound."""
        for (stage, position), (before_stage, _) in zip(run.path, run.path[1:], strict=False):
            order = orders[stage]
            if stage != before_stage or order[position - 1] is order[position]:
                continue
            for changed in moves(order, position):
                if is_whole(self._shape, stage, changed):
                    yield (*orders[:stage], changed, *orders[stage + 1 :])

    def _path(self, causes: list[list[Place | None]], place: Place) -> Iterator[Place]:
        while True:
            yield place
            stage, position = place
            cause = causes[stage][position]
            if cause is None and position == 0:
                return
            place = (stage, position - 1) if cause is None else cause

    def _awaited(self, kind: ActionKind, stage: int) -> MessageKind | None:
        if kind is ActionKind.FORWARD:
            return MessageKind.ACTIVATION if stage else None
        return MessageKind.GRADIENT if kind is ActionKind.BACKWARD_INPUT and stage < self._last else None

    def _sent(self, kind: ActionKind, stage: int) -> MessageKind | None:
        if kind is ActionKind.FORWARD:
            return MessageKind.ACTIVATION if stage < self._last else None
        return MessageKind.GRADIENT if kind is ActionKind.BACKWARD_INPUT and stage else None


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

_FEWEST_RULES = 4

_SIMULATED_ACTIONS = 500_000
"""The most actions that are simulated under all rules together: about two seconds."""

_SHORTENED_ACTIONS = 500_000
"""The most actions that are run again to shorten a plan: about two seconds."""

_SHORTEST = 3
"""The number of the shortest runs that are shortened and priced."""


@lru_cache(maxsize=32)
def plan_split_cell(costs: CellCosts) -> CellPlan:
    """Return the plan with the shortest period that is found, with its makespan over the links of ``costs``. Cached.

    All pipelines of the DP-cell run the same orders, and take turns on shared boundaries microbatch by microbatch.
    Orders are made by rate and latency, and then priced over links with a state where ``costs`` has them
    (``plan_run``). One candidate is the order of ZB-H1, so the period is never longer than that over the same links. Of
    equal periods the shorter makespan counts. The number of rules that are tried falls with the number of actions, and
    so does the effort to shorten the best runs.
    """
    pipeline = OrderedPipeline(costs)
    made = {orders: run.length_ns for orders in _candidates(costs) if (run := pipeline.run(orders)) is not None}
    best = sorted(made, key=lambda orders: made[orders])[:_SHORTEST]
    most_runs = _SHORTENED_ACTIONS // (_actions(costs) * len(best))
    wanted = dict.fromkeys([*best, *(pipeline.shortened(orders, most_runs)[0] for orders in best), _zb_h1(costs)])
    return shortest([_plan(orders, costs) for orders in wanted], costs)


def _candidates(costs: CellCosts) -> Iterator[Orders]:
    for rules in RULES[: max(_FEWEST_RULES, _SIMULATED_ACTIONS // _actions(costs))]:
        yield SplitSimulation(costs, rules).run()


def _actions(costs: CellCosts) -> int:
    return 3 * costs.shape.stages * costs.shape.microbatches


def _zb_h1(costs: CellCosts) -> Orders:
    schedule = ZeroBubble(costs.shape)
    return tuple(tuple(action.kind for action in schedule.order(stage)) for stage in range(costs.shape.stages))


def _plan(orders: Orders, costs: CellCosts) -> CellPlan:
    microbatches, pipelines = range(costs.shape.microbatches), range(costs.pipelines)
    turns: tuple[Turn, ...] = tuple((pipeline, microbatch) for microbatch in microbatches for pipeline in pipelines)
    on_boundaries = tuple(turns if boundary.shared else () for boundary in costs.boundaries)
    own = tuple(tuple(_numbered(order)) for order in orders)
    return CellPlan((own,) * costs.pipelines, on_boundaries, on_boundaries, 0, 0)


def _numbered(order: tuple[ActionKind, ...]) -> Iterator[Action]:
    done: dict[ActionKind, int] = {}
    for kind in order:
        yield Action(kind, done.get(kind, 0))
        done[kind] = done.get(kind, 0) + 1
