"""The ceiling that a model's speed is held against: products of large square matrices, measured on the same device."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from workloads.compute.torch_device import TorchDevice
from workloads.profiling.repeats import repeated

_PRODUCT = "product"


@dataclass(frozen=True)
class ProductTimes:
    """What multiplying two ``size`` x ``size`` matrices took, one figure a repeat."""

    size: int
    repeats_ns: tuple[int, ...]


def measure_product(
    device: TorchDevice, dtype: torch.dtype, size: int, repeats: int, *, warmup_ns: int, repeat_ns: int
) -> ProductTimes:
    """The times of the product of two random matrices, without making them; launching counts as little as it can."""
    multiply = _multiplication(device, dtype, size)

    def passes(count: int) -> dict[str, int]:
        start_ns, end_ns = device.timed(lambda: multiply(count))
        return {_PRODUCT: max(1, (end_ns - start_ns) // count)}

    return ProductTimes(size, repeated(passes, repeats, warmup_ns=warmup_ns, repeat_ns=repeat_ns)[_PRODUCT])


def _multiplication(device: TorchDevice, dtype: torch.dtype, size: int) -> Callable[[int], None]:
    generator = torch.Generator().manual_seed(size)
    one, other = (torch.randn(size, size, generator=generator).to(device.device, dtype) for _ in range(2))
    product = torch.empty_like(one)

    def multiply(count: int) -> None:
        for _ in range(count):
            torch.mm(one, other, out=product)

    return multiply
