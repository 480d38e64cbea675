"""The costs that a plan for one DP-cell is made from, and the plan itself.

A DP-cell is C pipelines whose replicas of each stage are in the same datacenter. The links of a shared boundary carry
the transfer of one pipeline at a time, striped over the node pairs of all C pipelines.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from wanbed.workloads.message import MessageKind
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.pipeline_shape import PipelineShape

Turn = tuple[int, int]
"""The turn of one transfer: (pipeline of the DP-cell, microbatch)."""


class LinkState(Protocol):
    """The links of one direction of a boundary, with their state after the transfers so far."""

    def send(self, ready_ns: int) -> tuple[int, int]:
        """Send the next transfer, after those before it. Return when all of it has left, and when it has arrived."""


class LinkModel(Protocol):
    """A model of links whose transfer times depend on the transfers before, as over TCP connections."""

    def opened(self) -> LinkState:
        """Return new links, which have carried no transfer yet."""


@dataclass(frozen=True)
class BoundaryCosts:
    """The costs of the links between a stage and the next. The two directions are independent.

    - ``latency_ns``: from the end of the occupancy of an activation or gradient until it has arrived.
    - ``occupancy_ns``: how long an activation or gradient keeps its direction busy.
    - ``shared``: all pipelines of the DP-cell take turns, and ``occupancy_ns`` is that of all their node pairs
      together. Otherwise each pipeline has links of its own.
    - ``links``: a model of the effects beyond rate and latency in a sequence of transfers; None if there are none.
    - ``gradients``: the costs of the direction back to the earlier stage; None if they are the same.

    Raises ValueError naming the field.
    """

    latency_ns: int
    occupancy_ns: int
    shared: bool
    links: LinkModel | None = None
    gradients: "BoundaryCosts | None" = None

    def of(self, kind: MessageKind) -> "BoundaryCosts":
        """Return the costs of the direction that messages of that kind take."""
        return self.gradients if self.gradients is not None and kind is MessageKind.GRADIENT else self

    def __post_init__(self) -> None:
        for name in ("latency_ns", "occupancy_ns"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)} is negative")


@dataclass(frozen=True)
class CellCosts:
    """The costs of one DP-cell of ``pipelines`` pipelines, all of one shape.

    Durations have one value per stage, each for one microbatch. ``recompute_ns`` is used only at stages that recompute.
    ``boundaries`` has one entry less than there are stages. ``between_ns`` is the time between a stage's last action
    and its first action of the next iteration: the all-reduce of its gradients and the optimizer. Empty means zero.
    ``backward_input_ns`` and ``backward_weight_ns`` are the parts of a split backward, each half of it if empty.
    With ``sends_block`` a stage that sends starts no further action until its transfer has left.
    Raises ValueError naming the field.
    """

    shape: PipelineShape
    pipelines: int
    forward_ns: tuple[int, ...]
    backward_ns: tuple[int, ...]
    recompute_ns: tuple[int, ...]
    boundaries: tuple[BoundaryCosts, ...]
    between_ns: tuple[int, ...] = ()
    backward_input_ns: tuple[int, ...] = ()
    backward_weight_ns: tuple[int, ...] = ()
    sends_block: bool = False

    @property
    def has_state(self) -> bool:
        """Tell whether transfer times depend on the transfers before, on any of the links."""
        return any(boundary.of(kind).links is not None for boundary in self.boundaries for kind in MessageKind)

    def slowed(self, factor: int) -> "CellCosts":
        """Return the costs over links that are busy so many times as long."""

        def of(boundary: BoundaryCosts) -> BoundaryCosts:
            gradients = None if boundary.gradients is None else of(boundary.gradients)
            return replace(boundary, occupancy_ns=boundary.occupancy_ns * factor, gradients=gradients)

        return replace(self, boundaries=tuple(map(of, self.boundaries)))

    @property
    def durations_ns(self) -> Mapping[ActionKind, tuple[int, ...]]:
        """The duration of each kind of action, one value per stage."""
        halves_ns = tuple(duration_ns // 2 for duration_ns in self.backward_ns)
        rests_ns = tuple(duration_ns - duration_ns // 2 for duration_ns in self.backward_ns)
        return {
            ActionKind.FORWARD: self.forward_ns,
            ActionKind.RECOMPUTE: self.recompute_ns,
            ActionKind.BACKWARD: self.backward_ns,
            ActionKind.BACKWARD_INPUT: self.backward_input_ns or rests_ns,
            ActionKind.BACKWARD_WEIGHT: self.backward_weight_ns or halves_ns,
        }

    def __post_init__(self) -> None:
        if self.pipelines < 1:
            raise ValueError(f"pipelines: {self.pipelines} is below 1")
        required = ("forward_ns", "backward_ns", "recompute_ns")
        for name in (*required, "between_ns", "backward_input_ns", "backward_weight_ns"):
            durations = getattr(self, name)
            if name not in required and not durations:
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
    """The order of all actions and transfers in one iteration of one DP-cell, the same for every iteration.

    - ``orders[pipeline][stage]``: the actions of that stage.
    - ``activation_turns[boundary]``, ``gradient_turns[boundary]``: the order in which transfers start on a shared
      boundary. Empty for other boundaries, where each pipeline sends its transfers as soon as they are computed.
    - ``period_ns``: from the end of one iteration to the end of the next, with the costs that were planned.
    - ``makespan_ns``: from the start of the first action to the end of the last. Over links with a state it is that of
      an iteration after the first.

    Ranks that follow these orders cannot deadlock, whatever the durations, if their sends block only where those of the
    planned costs do.
    """

    orders: tuple[tuple[tuple[Action, ...], ...], ...]
    activation_turns: tuple[tuple[Turn, ...], ...]
    gradient_turns: tuple[tuple[Turn, ...], ...]
    period_ns: int
    makespan_ns: int

    def splits(self, stage: int) -> bool:
        """Return whether that stage splits its backwards."""
        return any(action.kind is ActionKind.BACKWARD_INPUT for pipeline in self.orders for action in pipeline[stage])


def options_for(plan: CellPlan, pipeline: int, stage: int | None = None) -> dict[str, Any]:
    """Return the JSON options of ``PlannedSchedule`` for one pipeline of the DP-cell (0 to C - 1).

    With ``stage``, they contain only that stage's list, for a rank that runs no other stage.
    """
    return {
        "orders": [
            [[action.kind.value, action.microbatch] for action in order] if stage in {None, own} else None
            for own, order in enumerate(plan.orders[pipeline])
        ]
    }
