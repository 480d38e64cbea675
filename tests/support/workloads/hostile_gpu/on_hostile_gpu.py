"""Put a hostile GPU in place of the machine's own."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import pytest

from tests.support.workloads.hostile_gpu.gpu import MIB, HostileGpu, hostile_device
from tests.support.workloads.hostile_gpu.streams import Order
from wanbed.runner.compute_profiling import measuring
from wanbed.workloads.compute.device import torch_device

SEEDS = range(3)
ORDERS = [(order, seed) for order in Order for seed in (SEEDS if order is Order.RANDOM else (0,))]
"""Every order, the random one from several seeds."""

EACH_ORDER = [pytest.param(*each, marks=[pytest.mark.soak] if each[1] else []) for each in ORDERS]
EACH_SEED = [pytest.param(seed, marks=[pytest.mark.soak] if seed else []) for seed in SEEDS]
"""They for tests, which need the random one again only now and then."""


@contextmanager
def on_hostile_gpu(order: Order = Order.LAZY, seed: int = 0, *, memory_bytes: int = 8 * MIB) -> Iterator[HostileGpu]:
    """Within it, whatever creates a device gets that of a hostile GPU, and this thread's torch computes on it."""
    gpu = HostileGpu(order, seed, memory_bytes=memory_bytes)
    with ExitStack() as stack:
        for module in (torch_device, measuring):
            stack.enter_context(mock.patch.object(module, "create_device", return_value=hostile_device(gpu)))
        stack.enter_context(gpu)
        yield gpu
