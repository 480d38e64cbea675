from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.support.workloads.reference_training import relative_error
from tests.workloads.compute.hand_driven import train_by_hand
from wanbed.workloads.compute import torch_compute
from wanbed.workloads.compute.device.torch_device import CpuDevice, create_device
from wanbed.workloads.compute.tensor_bytes import as_tensor
from wanbed.workloads.compute.torch_compute import TorchCompute
from wanbed.workloads.compute.torch_work import TorchWork
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.model.gpt_config import GptConfig

WORK = TorchWork(
    config=GptConfig(layers=4, hidden=32, context=16, heads=4, vocabulary=64),
    stages=2,
    stage=0,
    pipelines=2,
    pipeline=0,
    microbatches=3,
    recompute=True,
    precision="fp32",
    device="cpu",
    seed=3,
    learning_rate=1e-3,
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
    monkeypatch.setattr(torch_compute, "create_device", lambda name: ApartDevice())
    found = train_by_hand(WORK, 3)
    assert found.losses == expected.losses
    assert relative_error(found.gradients, expected.gradients) == 0


def test_a_device_with_memory_of_its_own_lets_payloads_go_on_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_compute, "create_device", lambda name: ApartDevice())
    let_go: list[memoryview] = []
    payload = memoryview(bytearray(WORK.config.activation_bytes("fp32")))
    TorchCompute(replace(WORK, stage=1), let_go.append).arrived(Message(MessageKind.ACTIVATION, 0), payload)
    assert [one is payload for one in let_go] == [True]


def test_the_cpu_copies_nothing_that_lies_in_order() -> None:
    tensor = torch.zeros(3, 4)
    assert CpuDevice().on_host(tensor).data_ptr() == tensor.data_ptr()
    assert CpuDevice().on_host(tensor.t()).is_contiguous()


@pytest.mark.skipif(torch.cuda.is_available(), reason="shows what happens on a machine without a GPU")
@pytest.mark.parametrize("name", ["auto", "cpu"])
def test_without_a_gpu_auto_is_the_cpu(name: str) -> None:
    assert isinstance(create_device(name), CpuDevice)
