"""The formats that pseudo-gradients have on the wire, and how many bytes they take. Needs no torch."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

BLOCK: Final = 1024
"""The elements that share a scale, in the formats that need one. The scale is an fp32 number."""
_SCALE_BYTES: Final = 4


class WireFormat(StrEnum):
    """A wire format. ``fp8`` is E4M3, ``fp4`` is E3M0: a sign and a power of two, or zero."""

    FP32 = "fp32"
    BF16 = "bf16"
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
    WireFormat.INT8: WireLayout(BLOCK, 8, _SCALE_BYTES),
    WireFormat.FP8: WireLayout(BLOCK, 8, _SCALE_BYTES),
    WireFormat.FP4: WireLayout(BLOCK, 4, _SCALE_BYTES),
}
