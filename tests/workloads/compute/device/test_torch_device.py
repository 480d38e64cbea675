import os
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tests.support.workloads.changed import changed
from tests.support.workloads.reference_training import relative_error
from tests.workloads.compute.hand_driven import train_by_hand
from wanbed.workloads.compute.computed_stage import ComputedStage
from wanbed.workloads.compute.device import torch_device
from wanbed.workloads.compute.device.torch_device import (
    CpuDevice,
    as_bytes,
    as_tensor,
    choose_kernels,
    create_device,
    kernels_are_deterministic,
)
from wanbed.workloads.compute.device_settings import TrainingDevice
from wanbed.workloads.compute.torch_compute import TorchCompute
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.learning_config import LearningConfig
from wanbed.workloads.message import Message, MessageKind

WORK = TorchWork(
    ComputedStage(stages=2, stage=0, pipelines=2, pipeline=0, microbatches=3),
    LearningConfig(GptConfig(layers=4, hidden=32, context=16, heads=4, vocabulary=64), 1e-3, "fp32", seed=3),
    TrainingDevice("cpu"),
    recompute=True,
    split_backward=True,
)


class ApartDevice(CpuDevice):
    """A CPU with memory of its own, as a GPU has: whatever comes and goes is copied."""

    shares_memory = False

    def received(self, payload: memoryview, dtype: torch.dtype) -> Tensor:
        return as_tensor(payload, dtype).clone()

    def on_host(self, tensor: Tensor) -> Tensor:
        return tensor.detach().clone()


def test_a_device_with_memory_of_its_own_trains_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = train_by_hand(WORK, 3)
    monkeypatch.setattr(torch_device, "create_device", lambda name: ApartDevice())
    found = train_by_hand(WORK, 3)
    assert found.losses == expected.losses
    assert relative_error(found.gradients, expected.gradients) == 0


def test_a_device_with_memory_of_its_own_lets_payloads_go_on_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_device, "create_device", lambda name: ApartDevice())
    let_go: list[memoryview] = []
    payload = memoryview(bytearray(WORK.learning.model.activation_bytes("fp32")))
    TorchCompute(changed(WORK, stage=1), let_go.append).arrived(Message(MessageKind.ACTIVATION, 0), payload)
    assert [one is payload for one in let_go] == [True]


def test_the_cpu_copies_nothing_that_lies_in_order() -> None:
    tensor = torch.zeros(3, 4)
    assert CpuDevice().on_host(tensor).data_ptr() == tensor.data_ptr()
    assert CpuDevice().on_host(tensor.t()).is_contiguous()


@pytest.mark.skipif(torch.cuda.is_available(), reason="shows what happens on a machine without a GPU")
@pytest.mark.parametrize("name", ["auto", "cpu"])
def test_without_a_gpu_auto_is_the_cpu(name: str) -> None:
    assert isinstance(create_device(name), CpuDevice)


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^device: 'tpu' is none of auto, cpu, cuda$"):
        create_device("tpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bytes_and_tensor_are_the_same_memory_both_ways(dtype: torch.dtype) -> None:
    tensor = torch.arange(6).to(dtype).view(2, 3).requires_grad_()
    data = as_bytes(tensor)
    assert (data.nbytes, data.format, data.ndim, data.readonly) == (6 * dtype.itemsize, "B", 1, False)
    back = as_tensor(data, dtype)
    assert torch.equal(back, tensor.detach().flatten())
    back[4] = 9
    assert tensor[1, 1] == 9


def test_bytes_keep_the_tensors_memory_alive() -> None:
    data = as_bytes(torch.full((1000,), 7.0))
    torch.zeros(1000)
    assert torch.equal(as_tensor(data, torch.float32), torch.full((1000,), 7.0))


def test_a_tensor_whose_elements_are_out_of_order_has_no_bytes() -> None:
    with pytest.raises(RuntimeError):
        as_bytes(torch.zeros(2, 3).t())


WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


@pytest.fixture(autouse=True)
def any_kernels_afterwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(WORKSPACE, raising=False)
    yield
    choose_kernels(deterministic=False)
    os.environ.pop(WORKSPACE, None)


def test_torch_uses_any_kernel_unless_deterministic_ones_are_chosen() -> None:
    choose_kernels(deterministic=False)
    assert not kernels_are_deterministic()
    assert WORKSPACE not in os.environ
    choose_kernels(deterministic=True)
    assert kernels_are_deterministic()
    assert os.environ[WORKSPACE] == ":4096:8"


def test_a_workspace_that_the_user_has_chosen_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACE, ":16:8")
    choose_kernels(deterministic=True)
    assert os.environ[WORKSPACE] == ":16:8"


def test_new_tensors_are_never_filled_with_nan() -> None:
    choose_kernels(deterministic=True)
    # Memory that was used before may hold anything, also NaN here and there.
    assert not torch.empty(2**24).isnan().all()


@pytest.mark.parametrize("deterministic", [False, True])
def test_training_chooses_as_configured_and_records_it(deterministic: bool) -> None:
    compute = TorchCompute(changed(WORK, deterministic=deterministic), lambda _: None)
    assert kernels_are_deterministic() is deterministic
    assert compute.record().deterministic is deterministic
