"""The messages between stages: the activation of one microbatch to the next stage, or its gradient to the previous."""

from dataclasses import dataclass
from enum import StrEnum


class MessageKind(StrEnum):
    """An activation goes to the next stage, a gradient to the previous one."""

    ACTIVATION = "activation"
    GRADIENT = "gradient"

    # That of Enum is a function of Python, where the simulator looks kinds up again and again.
    __hash__ = str.__hash__


@dataclass(frozen=True, slots=True)
class Message:
    """One transfer between neighbouring stages, within one iteration of one pipeline.

    ``chunk`` is the virtual stage, of those of one stage, that it comes from or goes to, at the end that holds the
    message. It is 0 where a stage is one.
    """

    kind: MessageKind
    microbatch: int
    chunk: int = 0
