"""Measure products of large square matrices: the ceiling that a model's speed on the device is compared with."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from wanbed.workloads.compute.device.torch_device import TorchDevice
from wanbed.workloads.profiling.repeats import Pace, repeated

_PRODUCT = "product"


@dataclass(frozen=True)
class ProductTimes:
    """The times in nanoseconds of one product of two ``size`` x ``size`` matrices, one figure per repeat."""

    size: int
    repeats_ns: tuple[int, ...]


def measure_product(device: TorchDevice, dtype: torch.dtype, size: int, pace: Pace) -> ProductTimes:
    """Measure the product of two random matrices.

    The time to create them is not included. Several products in one pass keep the launch overhead small.
    """
    multiply = _multiplication(device, dtype, size)

    def passes(count: int) -> dict[str, int]:
        start_ns, end_ns = device.timed(lambda: multiply(count))
        return {_PRODUCT: max(1, (end_ns - start_ns) // count)}

    return ProductTimes(size, repeated(passes, pace)[_PRODUCT])


def _multiplication(device: TorchDevice, dtype: torch.dtype, size: int) -> Callable[[int], None]:
    generator = torch.Generator().manual_seed(size)
    one, other = (torch.randn(size, size, generator=generator).to(device.device, dtype) for _ in range(2))
    product = torch.empty_like(one)

    def multiply(count: int) -> None:
        for _ in range(count):
            torch.mm(one, other, out=product)

    return multiply
