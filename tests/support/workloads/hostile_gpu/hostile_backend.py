"""Training by torch in a rank of its own process, on a hostile GPU."""

from contextlib import ExitStack

from tests.support.workloads.hostile_gpu.gpu import MIB
from tests.support.workloads.hostile_gpu.on_hostile_gpu import on_hostile_gpu
from tests.support.workloads.hostile_gpu.streams import Order
from wanbed.workloads.compute.backends.backend import Computation, ComputeConfig, RankContext
from wanbed.workloads.compute.backends.torch_backend import TorchBackend

_machine = ExitStack()
"""Holds the GPU until the process ends."""


class HostileBackend(TorchBackend):
    """The process's main thread computes on a hostile GPU, whose order depends on the stage."""

    def create(self, config: ComputeConfig, context: RankContext) -> Computation:
        """Put the GPU in the machine's place for the rest of the process."""
        _machine.enter_context(on_hostile_gpu(Order.RANDOM, config.computed.stage, memory_bytes=128 * MIB))
        return super().create(config, context)
