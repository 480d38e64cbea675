"""Run given orders of one pipeline with split backwards strictly, and shorten the run by small changes on its way.

Microbatches take turns in each kind of action, so an order is a sequence of kinds. Only a change on the critical path
(the chain of actions and transfers before the end of the longest stage) can shorten a run: two actions of one stage
that follow each other there change places, or an action moves to before or after others of the stage.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from wanbed.workloads.message import MessageKind
from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.planning.cell_plan import CellCosts

Order = tuple[ActionKind, ...]
"""The kinds of one stage's actions, in order."""

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
            for changed in _moves(order, position):
                if self._is_whole(stage, changed):
                    yield (*orders[:stage], changed, *orders[stage + 1 :])

    def _is_whole(self, stage: int, order: Order) -> bool:
        """Return whether each microbatch goes through its kinds in order, within the stage's memory bound."""
        kinds = (
            ActionKind.FORWARD,
            *([ActionKind.RECOMPUTE] if self._shape.recomputes(stage) else []),
            ActionKind.BACKWARD_INPUT,
            ActionKind.BACKWARD_WEIGHT,
        )
        bound, step = self._shape.most_in_flight(stage), {kind: index for index, kind in enumerate(kinds)}
        done = [0] * len(kinds)
        for kind in order:
            index = step[kind]
            if done[index] == (done[-1] + bound if index == 0 else done[index - 1]):
                return False
            done[index] += 1
        return True

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


def _moves(order: Order, position: int) -> Iterator[Order]:
    """Yield the order with the action at ``position``, or the one before it, in another place."""
    before, own = order[position - 1], order[position]
    yield (*order[: position - 1], own, before, *order[position + 1 :])
    first = position - 1
    while first and order[first - 1] is before:
        first -= 1
    if first < position - 1:
        yield (*order[:first], own, *order[first:position], *order[position + 1 :])
    if before is ActionKind.BACKWARD_WEIGHT:
        for later in range(position + 1, len(order)):
            yield (*order[: position - 1], *order[position : later + 1], before, *order[later + 1 :])
