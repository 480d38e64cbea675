"""The messages between stages: the activation of one microbatch to the next stage, or its gradient to the previous."""

from dataclasses import dataclass
from enum import StrEnum


class MessageKind(StrEnum):
    """An activation goes to the next stage, a gradient to the previous one."""

    ACTIVATION = "activation"
    GRADIENT = "gradient"


@dataclass(frozen=True, slots=True)
class Message:
    """One transfer between neighbouring stages, within one iteration of one pipeline."""

    kind: MessageKind
    microbatch: int
