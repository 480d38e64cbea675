"""Define the formats in which activations and their gradients cross the WAN. Plain data, needs no torch."""

from dataclasses import dataclass
from typing import Any, Final

from wanbed.workloads.synchronization.synchronization import BLOCK, WireFormat

TOPK: Final = "topk"
"""The name of the format that sends the numbers of largest magnitude alone."""

PLACE_BYTES: Final = 2
"""The bytes of a kept number's place in its block."""


@dataclass(frozen=True)
class ActivationWire:
    """The wire format of a message between stages.

    ``numbers`` is the format of each number. With ``kept`` only so many of every ``BLOCK`` numbers go, those of the
    largest magnitude, each after its place. With ``error_feedback`` the sender adds what an encoding has lost to the
    next message of the same kind and microbatch. Raises ValueError naming the field.
    """

    numbers: WireFormat
    kept: int | None = None
    error_feedback: bool = False

    def __post_init__(self) -> None:
        if self.kept is not None and not 1 <= self.kept <= BLOCK:
            raise ValueError(f"kept: {self.kept} is not from 1 to {BLOCK}")
        if self.kept is not None and self.numbers.layout.block != 1:
            raise ValueError(f"kept: numbers of {self.numbers} share a scale, so that none goes alone")

    @property
    def name(self) -> str:
        """The name of the format, as the experiment file has it."""
        return str(self.numbers) if self.kept is None else TOPK

    def encoded_bytes(self, elements: int) -> int:
        """Return how many bytes ``elements`` numbers take: whole blocks, the last one filled up with zeros."""
        if self.kept is None:
            return self.numbers.encoded_bytes(elements)
        return -(-elements // BLOCK) * self.kept * (self.numbers.element_bytes + PLACE_BYTES)


@dataclass(frozen=True)
class EncodedBoundaries:
    """The boundaries of a pipeline whose messages are encoded, both ways, and their wire format.

    Boundary i lies between parts i and i + 1 of the model.
    """

    wire: ActivationWire
    boundaries: tuple[int, ...]

    def document(self) -> dict[str, Any]:
        """Return the wire format and the boundaries in plain JSON types."""
        kept = {} if self.wire.kept is None else {"kept_of_1024": self.wire.kept}
        return {
            "wire": self.wire.name,
            **kept,
            "error_feedback": self.wire.error_feedback,
            "boundaries": list(self.boundaries),
        }
