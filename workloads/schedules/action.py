"""The actions of a GPU: one computation of one microbatch each."""

from dataclasses import dataclass
from enum import StrEnum


class ActionKind(StrEnum):
    """The computations of one microbatch at one stage. Each value is also the kind of the action's span.

    Where a schedule splits the backward, ``BACKWARD_INPUT`` computes the gradient of the stage's input, which is sent
    to the previous stage, and ``BACKWARD_WEIGHT`` the gradients of the stage's weights, which no other stage needs.
    """

    FORWARD = "forward"
    RECOMPUTE = "recompute"
    BACKWARD = "backward"
    BACKWARD_INPUT = "backward_input"
    BACKWARD_WEIGHT = "backward_weight"


@dataclass(frozen=True, slots=True)
class Action:
    """One computation of one microbatch. It occupies the stage's GPU from its start to its end."""

    kind: ActionKind
    microbatch: int

    def __str__(self) -> str:
        return f"{self.kind} of microbatch {self.microbatch}"
