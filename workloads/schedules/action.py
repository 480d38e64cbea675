"""The actions of a GPU: one computation of one microbatch each."""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache


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

    # That of Enum is a function of Python, where the simulator looks kinds up again and again.
    __hash__ = str.__hash__


TAKES_GRADIENT = (ActionKind.BACKWARD, ActionKind.BACKWARD_INPUT)
"""Actions that need the gradient from the next stage and compute the gradient for the previous stage."""


@dataclass(frozen=True, slots=True)
class Action:
    """One computation of one microbatch. It occupies the stage's GPU from its start to its end.

    ``chunk`` is which of its stage's virtual stages computes it, 0 where a stage is one.
    """

    kind: ActionKind
    microbatch: int
    chunk: int = 0

    def __str__(self) -> str:
        return f"{self.kind} of microbatch {self.microbatch}{f' in chunk {self.chunk}' if self.chunk else ''}"


@lru_cache(maxsize=1 << 16)
def known_action(kind: ActionKind, microbatch: int, chunk: int = 0) -> Action:
    """Return the action. Equal ones are one object: pipelines and stages run the same ones again and again."""
    return Action(kind, microbatch, chunk)
