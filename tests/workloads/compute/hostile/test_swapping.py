"""Swapping on a GPU that does whatever CUDA allows gives the bits that the CPU gives without swapping."""

from dataclasses import replace
from functools import cache

import pytest

from studies.gpu_kit.check_swapping import LoneTraining, train_alone, without_swapping
from tests.support.workloads.changed import changed
from tests.support.workloads.hostile_gpu.on_hostile_gpu import EACH_ORDER, on_hostile_gpu
from tests.support.workloads.hostile_gpu.streams import Order
from tests.support.workloads.one_thread import one_thread
from tests.workloads.compute.hostile.programs import WORK, swapping
from wanbed.workloads.compute.device_settings import SwapSettings, TrainingDevice
from wanbed.workloads.compute.torch_work import TorchWork

ITERATIONS = 2
WHOLE = changed(
    WORK,
    model=replace(WORK.learning.model, layers=4),
    stages=1,
    pipelines=1,
    split_backward=False,
    swapping=SwapSettings(),
)

_one_thread = pytest.fixture(autouse=True)(one_thread)


@cache
def on_the_cpu(precision: str) -> LoneTraining:
    return train_alone(without_swapping(changed(WHOLE, precision=precision, device=TrainingDevice("cpu"))), ITERATIONS)


def of_groups(precision: str, sizes: tuple[int, ...] | None) -> TorchWork:
    return changed(WHOLE, precision=precision, swapping=SwapSettings(sizes))


@pytest.mark.parametrize(("order", "seed"), EACH_ORDER)
def test_a_swapped_model_trains_bit_by_bit_as_on_the_cpu(order: Order, seed: int) -> None:
    with on_hostile_gpu(order, seed):
        found = train_alone(of_groups("fp32", (1, 2, 1)), ITERATIONS)
    assert found.same_bits(on_the_cpu("fp32"))


@pytest.mark.parametrize("sizes", [None, (4,), (1, 1, 1, 1)], ids=str)
def test_every_grouping_gives_the_same_bits(sizes: tuple[int, ...] | None) -> None:
    with on_hostile_gpu(Order.RANDOM):
        found = train_alone(of_groups("bf16", sizes), ITERATIONS)
    assert found.same_bits(on_the_cpu("bf16"))
    assert found.swapping is not None
    assert sizes in {None, tuple(group.layers for group in found.swapping.groups)}


@pytest.mark.parametrize(("order", "seed"), EACH_ORDER)
def test_groups_are_swapped_right_without_any_wait_for_kernels(order: Order, seed: int) -> None:
    sizes = (1, 2, 1, 1)
    expected = swapping(None, sizes)
    with on_hostile_gpu(order, seed) as gpu:
        assert swapping(gpu, sizes) == expected


def test_the_host_waits_only_for_the_last_gradients_and_the_losses() -> None:
    with on_hostile_gpu() as gpu:
        gradients, losses = swapping(gpu, (1, 2, 1))
        waits = gpu.waits[gpu.waits.index("event") :]
    # Both ends of the gradients' memory, once an iteration.
    assert waits == ["event"] * 2 * len(gradients) + ["value"] * len(losses)
