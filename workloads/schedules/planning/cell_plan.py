"""The profile that a plan for one DP-cell is made from, and the plan.

A DP-cell is C pipelines whose replicas of a stage sit side by side. Where ``shared``, a boundary's links carry one
pipeline's transfer at a time, over the node pairs of all C.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from workloads.schedules.action import Action
from workloads.schedules.pipeline_shape import PipelineShape

Turn = tuple[int, int]
"""Whose transfer: (pipeline of the cell, microbatch)."""


class LinkState(Protocol):
    """The links of one direction of a boundary, with what they remember of the transfers that they have carried."""

    def send(self, ready_ns: int) -> tuple[int, int]:
        """Send the next transfer, behind those before it. Returns when it has left, and when all of it has arrived."""


class LinkModel(Protocol):
    """The time of transfers over a boundary where that depends on those before them, as over TCP connections."""

    def opened(self) -> LinkState:
        """Return links that have carried nothing yet."""


@dataclass(frozen=True)
class BoundaryCosts:
    """The links between a stage and the next, the same in both directions, each direction on its own.

    One activation or gradient keeps its direction busy for ``occupancy_ns``, and is at the other stage ``latency_ns``
    after that. ``shared``: all pipelines of the cell take turns, and ``occupancy_ns`` is that of all their node pairs
    together; else each pipeline has links of its own. ``links`` models what rate and latency leave out of transfers in
    a row; None if there is nothing more. Raises ValueError naming the field.
    """

    latency_ns: int
    occupancy_ns: int
    shared: bool
    links: LinkModel | None = None

    def __post_init__(self) -> None:
        for name in ("latency_ns", "occupancy_ns"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)} is negative")


@dataclass(frozen=True)
class CellCosts:
    """One DP-cell: ``pipelines`` pipelines of one shape. Durations have one value per stage, one microbatch each.

    ``boundaries`` has one entry less than there are stages. ``recompute_ns`` counts where the shape recomputes.
    ``between_ns`` is the time between a stage's last action and its first one of the next iteration: the sum of its
    gradients and the optimizer; empty if that is nothing. Raises ValueError naming the field.
    """

    shape: PipelineShape
    pipelines: int
    forward_ns: tuple[int, ...]
    backward_ns: tuple[int, ...]
    recompute_ns: tuple[int, ...]
    boundaries: tuple[BoundaryCosts, ...]
    between_ns: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.pipelines < 1:
            raise ValueError(f"pipelines: {self.pipelines} is below 1")
        for name in ("forward_ns", "backward_ns", "recompute_ns", "between_ns"):
            durations = getattr(self, name)
            if name == "between_ns" and not durations:
                continue
            if len(durations) != self.shape.stages:
                raise ValueError(f"{name}: {len(durations)} values for {self.shape.stages} stages, give one for each")
            if min(durations) < 0:
                raise ValueError(f"{name}: {min(durations)} is negative")
        if len(self.boundaries) != self.shape.stages - 1:
            raise ValueError(
                f"boundaries: {len(self.boundaries)} for {self.shape.stages} stages, give one less than stages"
            )


@dataclass(frozen=True)
class CellPlan:
    """The order of all actions and transfers in one iteration of one DP-cell; the same for every iteration.

    ``orders[pipeline][stage]`` are that stage's actions. ``activation_turns[boundary]`` and
    ``gradient_turns[boundary]`` are the order in which transfers start on a shared boundary. They are empty for a
    boundary that is not shared, where each pipeline's transfers go as they are made. Ranks that keep these orders never
    wait for each other in a circle, however long anything takes. ``makespan_ns`` is from the first action's start to
    the last one's end, if everything takes what the profile says; over links that remember, in an iteration that is not
    the first.
    """

    orders: tuple[tuple[tuple[Action, ...], ...], ...]
    activation_turns: tuple[tuple[Turn, ...], ...]
    gradient_turns: tuple[tuple[Turn, ...], ...]
    makespan_ns: int


def options_for(plan: CellPlan, pipeline: int, stage: int | None = None) -> dict[str, Any]:
    """Return the options, as JSON has them, that make a planned schedule of one pipeline of the cell (0 to C - 1).

    With ``stage``, they have only that stage's list, for a rank that runs no other.
    """
    return {
        "orders": [
            [[action.kind.value, action.microbatch] for action in order] if stage in {None, own} else None
            for own, order in enumerate(plan.orders[pipeline])
        ]
    }
