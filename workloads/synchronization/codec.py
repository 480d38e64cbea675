"""Encode flat fp32 tensors in a wire format, decode them, and add what is encoded.

A block of a scaled format is its scale, the largest magnitude in the block over the largest of the format, then its
elements. The error of one encoding of ``x`` in a block whose largest magnitude is ``m``, rounding to nearest:

- fp32: 0
- bf16: ``|x| / 2**8``, of 8 significant bits
- fp16: the larger of ``|x| / 2**11`` and ``2**-25``, half the smallest step; beyond 65504 all is infinite
- int8: ``m / 254``, half a step of ``m / 127``
- fp8 (E4M3): the larger of ``|x| / 2**4`` and ``m / 448 / 2**10``, half the smallest step
- fp4 (E3M0): the larger of ``|x| / 3`` and ``m / 2**7``; magnitudes are ``m`` times 1, 1/2, ... 1/64, or 0

A sum of K replicas round a ring is encoded once at each replica and once at each of its K - 1 additions; each of these
errors is bounded by the largest magnitude in the block at that moment. A scale is 2**-126 at least, so that what lies
far below is lost. NaN and infinity spread over their block.
"""

from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor

from wanbed.workloads.synchronization.synchronization import WireFormat

_INT8_LARGEST: Final = 127
_FP8_LARGEST: Final = 448.0
_FP4_LOWEST: Final = -6
"""The exponent of the smallest magnitude of fp4 that is not 0, where the largest is 1."""
_FP4_SIGN: Final = 8


def encode(elements: Tensor, wire: WireFormat) -> Tensor:
    """Return the bytes of a flat fp32 tensor in the wire format, ``wire.encoded_bytes`` of them, as uint8."""
    if wire is WireFormat.FP32:
        return elements.contiguous().view(torch.uint8).clone()
    if wire in _SHORT:
        return elements.to(_SHORT[wire]).view(torch.uint8)
    layout = wire.layout
    blocks = torch.nn.functional.pad(elements, (0, -elements.numel() % layout.block)).view(-1, layout.block)
    largest = blocks.abs().amax(dim=1, keepdim=True)
    # A block of zeros may have any scale but 0.
    scales = (largest / _LARGEST[wire]).clamp(min=torch.finfo(torch.float32).tiny)
    codes = _CODES[wire](blocks / scales)
    return torch.cat((scales.view(torch.uint8), codes), dim=1).view(-1)


def decode(encoded: Tensor, wire: WireFormat) -> Tensor:
    """Return the fp32 elements of encoded bytes, those that fill the last block up included."""
    if wire is WireFormat.FP32:
        return encoded.view(torch.float32)
    if wire in _SHORT:
        return encoded.view(_SHORT[wire]).float()
    layout = wire.layout
    blocks = encoded.view(-1, wire.element_bytes)
    scales = blocks[:, : layout.scale_bytes].contiguous().view(torch.float32)
    return (_VALUES[wire](blocks[:, layout.scale_bytes :].contiguous()) * scales).view(-1)


def add_encoded(total: memoryview, part: memoryview, wire: WireFormat) -> None:
    """Add encoded elements to encoded elements in place: decode both, add in fp32, and encode the sum.

    Both are bytes of whole ``wire.element_bytes``.
    """
    if not total.nbytes:
        return
    into = torch.frombuffer(total, dtype=torch.uint8)
    summed = decode(aligned(into), wire) + decode(aligned(torch.frombuffer(part, dtype=torch.uint8)), wire)
    into.copy_(encode(summed, wire))


def aligned(encoded: Tensor) -> Tensor:
    """Return the bytes where they may be read as numbers: received memory may begin anywhere."""
    return encoded if encoded.data_ptr() % torch.float32.itemsize == 0 else encoded.clone()


def _int8_codes(scaled: Tensor) -> Tensor:
    return scaled.round().to(torch.int8).view(torch.uint8)


def _int8_values(codes: Tensor) -> Tensor:
    return codes.view(torch.int8).float()


def _fp8_codes(scaled: Tensor) -> Tensor:
    # Division by the scale may round beyond the largest, which has no code.
    return scaled.clamp(-_FP8_LARGEST, _FP8_LARGEST).to(torch.float8_e4m3fn).view(torch.uint8)


def _fp8_values(codes: Tensor) -> Tensor:
    return codes.view(torch.float8_e4m3fn).float()


def _fp4_codes(scaled: Tensor) -> Tensor:
    """Return two codes a byte: a sign, and an exponent from 1, or 0 for zero."""
    magnitude = scaled.abs()
    mantissa, exponent = torch.frexp(magnitude)
    # frexp gives m * 2**e with m from 1/2 to below 1. At 3/4 the next power of two is as near.
    power = torch.where(mantissa >= 0.75, exponent, exponent - 1).clamp(max=0)
    code = torch.where(magnitude < 2.0 ** (_FP4_LOWEST - 1), 0, (power - _FP4_LOWEST + 1).clamp(min=1))
    code = (code + _FP4_SIGN * (scaled < 0)).to(torch.uint8)
    return code[:, 0::2] | (code[:, 1::2] << 4)


def _fp4_values(codes: Tensor) -> Tensor:
    code = torch.stack((codes & 0xF, codes >> 4), dim=2).view(codes.shape[0], -1).int()
    exponent = code % _FP4_SIGN
    magnitude = torch.where(exponent > 0, torch.exp2((exponent - 1 + _FP4_LOWEST).float()), 0.0)
    return torch.where(code >= _FP4_SIGN, -magnitude, magnitude)


_SHORT: Final = {WireFormat.BF16: torch.bfloat16, WireFormat.FP16: torch.float16}
"""Formats whose elements are numbers of their own, without a scale."""

_LARGEST: Final = {WireFormat.INT8: float(_INT8_LARGEST), WireFormat.FP8: _FP8_LARGEST, WireFormat.FP4: 1.0}
_CODES: Final[Mapping[WireFormat, Callable[[Tensor], Tensor]]] = {
    WireFormat.INT8: _int8_codes,
    WireFormat.FP8: _fp8_codes,
    WireFormat.FP4: _fp4_codes,
}
_VALUES: Final[Mapping[WireFormat, Callable[[Tensor], Tensor]]] = {
    WireFormat.INT8: _int8_values,
    WireFormat.FP8: _fp8_values,
    WireFormat.FP4: _fp4_values,
}
