"""Shorten the period of a DP-cell by small changes of its orders and turns.

Only a change on the critical path (the chain of actions and transfers before the end of the last iteration) can shorten
a run: two actions of one stage that follow each other there change places, an action moves to before or after others of
the stage, or two transfers that follow each other on a shared line change places.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from random import Random

from wanbed.workloads.schedules.planning.ordered_cell import RUN_ITERATIONS, CellOrders, CellRun, OrderedCell
from wanbed.workloads.schedules.planning.stage_order import Order, moves, recompute_moves

_MOST_AT_ONCE = 6
"""The most changes at once that leave orders which no single change shortens."""

_MOST_IN_VAIN = 60
"""The search ends after so many times of several changes at once that have led to nothing shorter."""

_PATIENCE = 1.05
"""The search goes on from orders that are so much longer than the best at most."""

_Reached = tuple[CellOrders, CellRun]


class Shortening:
    """A search for orders of a cell whose run is shorter. It ends after so many actions have been run."""

    def __init__(self, cell: OrderedCell, most_actions: int) -> None:
        self._cell, self._least_ns = cell, cell.busy_ns
        self._left = most_actions // (RUN_ITERATIONS * cell.actions)
        self._dice = Random(0)  # noqa: S311 - nothing is kept secret by it

    def shortened(self, starts: Sequence[CellOrders]) -> list[CellOrders]:
        """Return the orders with the shortest run that is found, and those that each of the starts leads to.

        Each of the starts is changed as long as a single change shortens its run. Then the best orders so far are
        changed at several places at once, by dice that always fall alike, and shortened again. Raise ValueError if all
        starts deadlock.
        """
        found = [reached for start in starts if (reached := self._descended(start)) is not None]
        if not found:
            raise ValueError("orders: they deadlock")
        best = now = min(found, key=lambda reached: reached[1].length_ns)
        in_vain = 0
        while self._left > 0 and in_vain < _MOST_IN_VAIN and best[1].period_ns > self._least_ns:
            in_vain += 1
            reached = self._descended(self._kicked(now[0]))
            if reached is None:
                continue
            if reached[1].length_ns < best[1].length_ns:
                best, in_vain = reached, 0
            now = reached if reached[1].period_ns <= _PATIENCE * best[1].period_ns else best
        return [best[0], *(orders for orders, _ in found)]

    def _descended(self, orders: CellOrders) -> _Reached | None:
        """Return orders that no single change shortens, and their run; None if the given ones deadlock."""
        self._left -= 1
        best = self._cell.run(orders)
        if best is None:
            return None
        while best.period_ns > self._least_ns:
            for changed in self._changes(orders):
                if self._left <= 0:
                    return orders, best
                self._left -= 1
                run = self._cell.run(changed)
                if run is not None and run.length_ns < best.length_ns:
                    orders, best = changed, run
                    break
            else:
                break
        return orders, best

    def _kicked(self, orders: CellOrders) -> CellOrders:
        dice = self._dice
        for _ in range(dice.randint(1, _MOST_AT_ONCE)):
            index = dice.randrange(len(orders.stages))
            order = orders.stages[index]
            position = dice.randrange(1, len(order))
            if order[position - 1] is not order[position]:
                whole = list(self._whole_moves(index, order, position))
                if whole:
                    orders = _with_order(orders, index, dice.choice(whole))
        return orders

    def _changes(self, orders: CellOrders) -> Iterator[CellOrders]:
        """Yield the orders with one change on the critical path of their run, within the memory bound."""
        path = pairwise(self._cell.critical_path(orders))
        for index, position in dict.fromkeys(place for place, (before, _) in path if before == place[0]):
            if not position:
                continue
            if index < 0:
                yield from _with_turns_swapped(orders, -1 - index, position)
                continue
            order = orders.stages[index]
            if order[position - 1] is order[position]:
                continue
            for changed in self._whole_moves(index, order, position):
                yield self._with_alike(orders, index, changed)
                if self._cell.pipelines > 1:
                    yield _with_order(orders, index, changed)

    def _whole_moves(self, index: int, order: Order, position: int) -> Iterator[Order]:
        stage = index % self._cell.stages
        changes = chain(moves(order, position), recompute_moves(order, position))
        return (changed for changed in changes if self._cell.is_whole(stage, changed))

    def _with_alike(self, orders: CellOrders, index: int, changed: Order) -> CellOrders:
        """Return the orders with a changed one at that stage, in all pipelines that had the same one there."""
        before = orders.stages[index]
        for each in range(index % self._cell.stages, len(orders.stages), self._cell.stages):
            if orders.stages[each] == before:
                orders = _with_order(orders, each, changed)
        return orders


def _with_order(orders: CellOrders, index: int, order: Order) -> CellOrders:
    return CellOrders((*orders.stages[:index], order, *orders.stages[index + 1 :]), orders.turns)


def _with_turns_swapped(orders: CellOrders, line: int, position: int) -> Iterator[CellOrders]:
    """Yield the orders with the turn at ``position`` and the one before it in each other's place, if they differ."""
    turns = orders.turns[line]
    before, own = turns[position - 1], turns[position]
    if before != own:
        swapped = (*turns[: position - 1], own, before, *turns[position + 1 :])
        yield CellOrders(orders.stages, (*orders.turns[:line], swapped, *orders.turns[line + 1 :]))
