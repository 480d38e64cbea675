"""A model whose groups of layers are swapped, on the CPU: what is copied, what is waited for, what is refused."""

from dataclasses import replace
from typing import Any

import pytest

from studies.gpu_kit.check_swapping import train_alone, without_swapping
from tests.support.workloads.changed import changed
from tests.support.workloads.one_thread import one_thread
from tests.workloads.compute.hostile.programs import WORK
from wanbed.workloads.compute.device_settings import SwapSettings, TrainingDevice
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.synchronization.synchronization import Synchronization

LAYERS, ITERATIONS = 5, 3

SIZES = (1, 2, 1, 1)

WHOLE = changed(
    WORK,
    model=replace(WORK.learning.model, layers=LAYERS),
    stages=1,
    pipelines=1,
    device=TrainingDevice("cpu", swapping=SwapSettings(SIZES)),
    split_backward=False,
)

_one_thread = pytest.fixture(autouse=True)(one_thread)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_losses_gradients_and_weights_are_those_without_swapping(precision: str) -> None:
    work = changed(WHOLE, precision=precision)
    assert train_alone(work, ITERATIONS).same_bits(train_alone(without_swapping(work), ITERATIONS))


def test_all_but_the_last_two_groups_are_loaded_twice_and_gradients_go_back_once() -> None:
    record = train_alone(WHOLE, ITERATIONS).swapping
    assert record is not None
    sizes = [group.size_bytes for group in record.groups]
    assert [group.layers for group in record.groups] == list(SIZES)
    assert record.iterations == ITERATIONS
    assert record.loaded_bytes == ITERATIONS * (sum(sizes) + sum(sizes[:-2]))
    assert record.returned_bytes == ITERATIONS * sum(sizes)
    # The core that computes makes the copies.
    assert record.load_wait_ns == record.load_ns > 0
    assert record.planned_ns is None
    assert record.both_passes_ns > sum(group.forward_ns + group.backward_ns for group in record.groups) / 2


def test_groups_that_are_measured_fit_into_the_memory() -> None:
    model = WHOLE.learning.model
    largest = model.gradient_bytes(0, LAYERS, "fp32") + model.gradient_bytes(1, LAYERS, "fp32")
    record = train_alone(changed(WHOLE, swapping=SwapSettings(memory_bytes=largest)), 1).swapping
    assert record is not None
    assert [group.layers for group in record.groups] == [1] * LAYERS
    assert record.planned_ns is not None
    assert record.memory_bytes <= largest + 2 * 4 * 128


def test_a_memory_that_no_two_layers_fit_into_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^memory_bytes: 100 hold no group of layers and the next one"):
        train_alone(changed(WHOLE, swapping=SwapSettings(memory_bytes=100)), 1)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"stages": 5}, "a stage that swaps is the whole model"),
        ({"pipelines": 2}, "replicas that swap train alone"),
        ({"recompute": False}, "a group computes its forward again"),
        ({"swapping": SwapSettings((1, 2))}, "do not make 5 layers"),
        ({"swapping": SwapSettings(())}, "do not make 5 layers"),
    ],
)
def test_what_swapping_does_not_go_with_is_refused(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=rf"^swapping: .*{fault}"):
        changed(WHOLE, **changes)


def test_replicas_that_synchronise_may_swap() -> None:
    assert isinstance(changed(WHOLE, pipelines=2, synchronization=Synchronization(1)), TorchWork)
