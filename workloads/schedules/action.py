"""The next action of a GPU."""

from dataclasses import dataclass
from enum import StrEnum


class ActionKind(StrEnum):
    """The computations of one microbatch at one stage; each value is also its span's kind.

    Where a schedule splits the backward, ``BACKWARD_INPUT`` makes the gradient of the stage's input, which is sent to
    the stage before, and ``BACKWARD_WEIGHT`` the gradients of its weights, which nobody waits for.
    """

    FORWARD = "forward"
    RECOMPUTE = "recompute"
    BACKWARD = "backward"
    BACKWARD_INPUT = "backward_input"
    BACKWARD_WEIGHT = "backward_weight"


@dataclass(frozen=True, slots=True)
class Action:
    """One computation of one microbatch, which occupies the stage's GPU from its start to its end."""

    kind: ActionKind
    microbatch: int

    def __str__(self) -> str:
        return f"{self.kind} of microbatch {self.microbatch}"
