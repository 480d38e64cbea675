"""The order of one stage's actions where backwards are split: whether it is whole, and the small changes of it.

Microbatches take turns in each kind of action, so an order is a sequence of kinds.
"""

from collections.abc import Iterator

from wanbed.workloads.schedules.action import ActionKind
from wanbed.workloads.schedules.pipeline_shape import PipelineShape

Order = tuple[ActionKind, ...]
"""The kinds of one stage's actions, in order."""


def split_kinds(shape: PipelineShape, stage: int) -> tuple[ActionKind, ...]:
    """Return the kinds that each microbatch goes through at a stage, in order."""
    recompute = (ActionKind.RECOMPUTE,) if shape.recomputes(stage) else ()
    return (ActionKind.FORWARD, *recompute, ActionKind.BACKWARD_INPUT, ActionKind.BACKWARD_WEIGHT)


def is_whole(shape: PipelineShape, stage: int, order: Order) -> bool:
    """Return whether each microbatch goes through its kinds in order, within the stage's memory bound."""
    kinds = split_kinds(shape, stage)
    bound, step = shape.most_in_flight(stage), {kind: index for index, kind in enumerate(kinds)}
    done = [0] * len(kinds)
    for kind in order:
        index = step[kind]
        if done[index] == (done[-1] + bound if index == 0 else done[index - 1]):
            return False
        done[index] += 1
    return True


def moves(order: Order, position: int) -> Iterator[Order]:
    """Yield the order with the action at ``position``, or the one before it, in another place."""
    before, own = order[position - 1], order[position]
    yield (*order[: position - 1], own, before, *order[position + 1 :])
    first = _first_alike(order, position - 1)
    if first < position - 1:
        yield (*order[:first], own, *order[first:position], *order[position + 1 :])
    if before is ActionKind.BACKWARD_WEIGHT:
        for later in range(position + 1, len(order)):
            yield (*order[: position - 1], *order[position : later + 1], before, *order[later + 1 :])


def recompute_moves(order: Order, position: int) -> Iterator[Order]:
    """Yield the order with a recompute at ``position`` before each earlier action that ``moves`` leaves out."""
    if order[position] is ActionKind.RECOMPUTE:
        for earlier in range(_first_alike(order, position - 1)):
            yield (*order[:earlier], order[position], *order[earlier:position], *order[position + 1 :])


def _first_alike(order: Order, position: int) -> int:
    """Return the first place of those without a gap up to ``position`` that have the same kind as it."""
    first = position
    while first and order[first - 1] is order[position]:
        first -= 1
    return first
