"""A torch rank whose GPU the CPU plays: ``torch_rank_on_fake_gpu.py CONFIG.json``.

Its memory is the CPU's, so that torch computes. Its clock runs faster than the host's.
"""

import sys
import time

import torch
from torch import Tensor

from tests.support.workloads.fake_gpu import FakeGpu, FakeGpuDevice
from workloads.baselines import torch_rank, training

SPEED = 1.25


class TickingGpu(FakeGpu):
    """A GPU whose clock advances by itself."""

    def __init__(self) -> None:
        super().__init__(SPEED)

    def clock_ns(self) -> float:
        return time.monotonic_ns() * SPEED - 4_000_000_000


class CopyingDevice(FakeGpuDevice):
    """Copies to the host for real: what is sent must not change with what is computed afterwards."""

    def on_host(self, tensor: Tensor) -> Tensor:
        return tensor.detach().clone(memory_format=torch.contiguous_format)


if __name__ == "__main__":
    training.create_device = lambda name: {"cuda": CopyingDevice(TickingGpu())}[name]  # type: ignore[attr-defined]
    sys.exit(torch_rank.main(sys.argv[1:]))
