"""Define when replicas that train alone exchange pseudo-gradients, and in which format. Plain data, needs no torch.

DiLoCo: every ``sync_every`` iterations the replicas average by how much their parameters have moved, and an outer
optimizer moves the common parameters (arXiv 2311.08105). Streaming DiLoCo: the parameters of a stage are cut into
fragments, of which one is synchronised at a time, beside further iterations (arXiv 2501.18512).
"""

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

BLOCK: Final = 1024
"""The elements that share a scale, in the formats that need one. The scale is an fp32 number."""

_SCALE_BYTES: Final = 4


class WireFormat(StrEnum):
    """A wire format. ``fp16`` is IEEE's half, ``fp8`` is E4M3, ``fp4`` is E3M0: a sign and a power of two, or zero."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    INT8 = "int8"
    FP8 = "fp8"
    FP4 = "fp4"

    @property
    def layout(self) -> "WireLayout":
        """The layout of elements in the encoded bytes."""
        return _LAYOUTS[self]

    @property
    def element_bytes(self) -> int:
        """The bytes that stay together where encoded data is cut: a number, or a block with its scale."""
        return self.layout.scale_bytes + self.layout.block * self.layout.bits // 8

    def encoded_bytes(self, elements: int) -> int:
        """Return how many bytes ``elements`` numbers take: whole blocks, the last one filled up with zeros."""
        return -(-elements // self.layout.block) * self.element_bytes


@dataclass(frozen=True)
class WireLayout:
    """``block`` numbers of ``bits`` each, after a scale of ``scale_bytes``, which is 0 where there is none."""

    block: int
    bits: int
    scale_bytes: int


_LAYOUTS: Final = {
    WireFormat.FP32: WireLayout(1, 32, 0),
    WireFormat.BF16: WireLayout(1, 16, 0),
    WireFormat.FP16: WireLayout(1, 16, 0),
    WireFormat.INT8: WireLayout(BLOCK, 8, _SCALE_BYTES),
    WireFormat.FP8: WireLayout(BLOCK, 8, _SCALE_BYTES),
    WireFormat.FP4: WireLayout(BLOCK, 4, _SCALE_BYTES),
}

DILOCO: Final = "diloco"
"""The name of this way to train, where an experiment has a schedule's."""

ATOM: Final = "atom"
"""The name of the way to train where each replica swaps the whole model through one GPU."""


class SumTopology(StrEnum):
    """Between whom pseudo-gradients go: round a ring of the replicas, or to a central sum and back."""

    RING = "ring"
    STAR = "star"


@dataclass(frozen=True)
class Synchronization:
    """The rules that keep the replicas of a model together. Iterations are counted from 0.

    - ``sync_every``: every parameter is synchronised once in so many iterations.
    - ``fragments``: the parameters of a stage are cut into so many, of which one is synchronised every ``period``
      iterations, in turn.
    - ``delay``: so many iterations lie between the begin of a synchronisation and its application.
    - ``alpha``: the share of the local parameters that a replica keeps when it takes over the global ones.
    - ``outer_learning_rate``, ``outer_momentum``: of the outer optimizer, SGD with Nesterov's momentum.
    - ``wire``: the format of pseudo-gradients between replicas.
    - ``quorum``: with a star, how many replicas a synchronisation waits for. None for all.

    Raises ValueError naming the field.
    """

    sync_every: int
    fragments: int = 1
    delay: int = 0
    alpha: float = 0.0
    outer_learning_rate: float = 0.7
    outer_momentum: float = 0.9
    wire: WireFormat = WireFormat.FP32
    topology: SumTopology = SumTopology.RING
    quorum: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("sync_every", 1), ("fragments", 1), ("delay", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: {getattr(self, name)} is below {least}")
        if self.sync_every % self.fragments:
            raise ValueError(
                f"fragments: {self.fragments} do not divide sync_every, which is {self.sync_every}: give a divisor"
            )
        if self.delay >= self.period:
            raise ValueError(
                f"delay: {self.delay}, and a fragment is synchronised every {self.period} iterations: give less than "
                "sync_every / fragments"
            )
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha: {self.alpha} is not 0 to 1")
        if not self.outer_learning_rate > 0:
            raise ValueError(f"outer_learning_rate: {self.outer_learning_rate} is not above 0")
        if not 0 <= self.outer_momentum < 1:
            raise ValueError(f"outer_momentum: {self.outer_momentum} is not 0 to below 1")
        if self.quorum is not None and self.quorum < 1:
            raise ValueError(f"quorum: {self.quorum} is below 1")
        if self.quorum is not None and self.topology is not SumTopology.STAR:
            raise ValueError("quorum: a ring waits for all replicas: give topology: star, or leave quorum out")

    @property
    def period(self) -> int:
        """The iterations between the applications of two synchronisations."""
        return self.sync_every // self.fragments

    def fragment_begun(self, iteration: int) -> int | None:
        """Return the fragment whose synchronisation begins after that iteration, None if none does."""
        applied = iteration + self.delay + 1
        return None if applied % self.period else (applied // self.period - 1) % self.fragments

    def fragment_applied(self, iteration: int) -> int | None:
        """Return the fragment whose synchronisation is applied after that iteration, None if none is."""
        return self.fragment_begun(iteration - self.delay)

    def applied_after(self, iteration: int) -> int:
        """Return after which iteration a synchronisation is applied that began after ``iteration``."""
        return iteration + self.delay

    def count(self, iterations: int) -> int:
        """Return how many synchronisations are applied in so many iterations.

        One that would be applied later is not begun.
        """
        return iterations // self.period


def cut_fragments(elements: int, fragments: int) -> tuple[tuple[int, int], ...]:
    """Return the first element of each fragment, and the one after its last. Sizes differ by one element at most."""
    return tuple(pairwise(elements * index // fragments for index in range(fragments + 1)))


def fragments_bytes(elements: int, fragments: int, wire: WireFormat) -> tuple[int, ...]:
    """Return the encoded size of each fragment."""
    return tuple(wire.encoded_bytes(end - start) for start, end in cut_fragments(elements, fragments))
