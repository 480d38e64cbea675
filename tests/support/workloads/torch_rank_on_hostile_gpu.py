"""A rank of torch's own schedules on a GPU that the CPU plays: ``torch_rank_on_hostile_gpu.py CONFIG.json``."""

import sys
import time
from contextlib import ExitStack
from pathlib import Path

import torch

from tests.support.workloads.hostile_gpu.gpu import MIB, HostileGpu, hostile_device
from tests.support.workloads.hostile_gpu.streams import Order
from wanbed.workloads.baselines import torch_rank
from wanbed.workloads.baselines.baseline_config import TORCH_DDP, read_baseline_config
from wanbed.workloads.compute.device import torch_device
from wanbed.workloads.compute.device.torch_device import GpuDevice

SPEED = 1.25


class TickingGpu(HostileGpu):
    """A hostile GPU whose clock advances by itself, faster than the host's."""

    def __init__(self) -> None:
        super().__init__(Order.RANDOM, memory_bytes=128 * MIB)

    def clock_ns(self) -> float:
        return time.monotonic_ns() * SPEED - 4_000_000_000


def main(arguments: list[str]) -> int:
    """Run the rank. For DistributedDataParallel, whose C++ makes tensors unseen, the GPU's memory is the CPU's."""
    gpu = TickingGpu()
    with ExitStack() as stack:
        if read_baseline_config(Path(arguments[0])).shape.schedule == TORCH_DDP:
            device = GpuDevice(torch.device("cpu"), gpu)
        else:
            device = hostile_device(gpu)
            stack.enter_context(gpu)
        torch_device.create_device = lambda name: {"cuda": device}[name]
        return torch_rank.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
