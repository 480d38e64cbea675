"""The shortest iteration of a small pipeline, found by trying every order of every stage.

An order leaves nothing to decide: each action starts as soon as its stage is free and its message is there. Any
schedule, one that idles on purpose too, has the order of such a run and is no shorter. Microbatches are alike, so that
each kind of action takes them in turn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

Order = tuple[int, ...]
"""The kinds of a stage's actions in order, counted from 0, the forward. Microbatches take turns in each kind."""


@dataclass(frozen=True)
class SmallPipeline:
    """``durations[stage][kind]``, in the order of a microbatch's kinds; ``gradient`` is the kind that sends back.

    A transfer occupies a boundary for its ``occupancies`` and arrives its ``latencies`` later, in both directions.
    """

    durations: Sequence[Sequence[int]]
    gradient: int
    microbatches: int
    held: Sequence[int]
    latencies: Sequence[int]
    occupancies: Sequence[int]

    def shortest(self) -> int:
        """Return the makespan of the best of all combinations of orders."""
        each = [self.orders(stage) for stage in range(len(self.durations))]
        return min(end for orders in product(*each) if (end := self.makespan(orders)) is not None)

    def orders(self, stage: int) -> list[Order]:
        """Return every order of a stage within its memory bound."""
        kinds, found = len(self.durations[stage]), list[Order]()

        def extend(order: Order, done: tuple[int, ...]) -> None:
            if done[-1] == self.microbatches:
                found.append(order)
            for kind in range(kinds):
                most = min(self.microbatches, done[-1] + self.held[stage]) if kind == 0 else done[kind - 1]
                if done[kind] < most:
                    extend((*order, kind), (*done[:kind], done[kind] + 1, *done[kind + 1 :]))

        extend((), (0,) * kinds)
        return found

    def makespan(self, orders: Sequence[Order]) -> int | None:
        """Return when the last action ends under these orders, None if they deadlock."""
        last = len(orders) - 1
        position, free = [0] * (last + 1), [0] * (last + 1)
        arrived: dict[tuple[int, int, int], int] = {}
        link: dict[tuple[int, int], int] = {}
        done = [[0] * len(each) for each in self.durations]
        moved = True
        while moved:
            moved = False
            for stage, order in enumerate(orders):
                while position[stage] < len(order):
                    kind = order[position[stage]]
                    microbatch, ready = done[stage][kind], free[stage]
                    if (kind == 0 and stage > 0) or (kind == self.gradient and stage < last):
                        if (stage, kind, microbatch) not in arrived:
                            break
                        ready = max(ready, arrived[stage, kind, microbatch])
                    end = free[stage] = ready + self.durations[stage][kind]
                    done[stage][kind] += 1
                    position[stage] += 1
                    moved = True
                    to = stage + 1 if kind == 0 else stage - 1
                    if kind in {0, self.gradient} and 0 <= to <= last:
                        boundary = min(stage, to)
                        left = link[stage, to] = max(link.get((stage, to), 0), end) + self.occupancies[boundary]
                        arrived[to, kind, microbatch] = left + self.latencies[boundary]
        return max(free) if all(at == len(order) for at, order in zip(position, orders, strict=True)) else None
