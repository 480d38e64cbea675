from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.workloads.hostile_gpu.gpu import HostileGpu, hostile_device
from wanbed.workloads.baselines.staged_module import StagedModule

CPU, GPU = torch.device("cpu"), HostileGpu.torch_device


@pytest.fixture
def gpu() -> Iterator[HostileGpu]:
    with HostileGpu() as gpu:
        yield gpu


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(8, 8, device=GPU))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ self.weight


class Lookup(Product):
    def forward(self, inputs: Tensor) -> Tensor:
        return functional.embedding(inputs, self.weight)


class Notes:
    """What a stage says of its span, in order."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def restart(self) -> None:
        self.said.append("restart")

    def stop(self) -> None:
        self.said.append("stop")


def stage(gpu: HostileGpu, module: nn.Module, *, is_first: bool, is_last: bool) -> tuple[StagedModule, Notes]:
    notes, device = Notes(), hostile_device(gpu)
    return StagedModule(module, device, notes, is_first=is_first, is_last=is_last), notes  # type: ignore[arg-type]


@pytest.mark.parametrize("is_last", [False, True])
def test_what_a_stage_exchanges_is_in_host_memory_and_what_it_computes_on_the_gpu(
    gpu: HostileGpu, is_last: bool
) -> None:
    staged, notes = stage(gpu, Product(), is_first=False, is_last=is_last)
    inputs = torch.randn(4, 8, requires_grad=True)
    output = staged(inputs)
    assert output.device == (GPU if is_last else CPU)
    assert notes.said == ["restart", "stop"]
    output.backward(torch.randn(4, 8, device=output.device))
    assert inputs.grad is not None
    assert inputs.grad.device == CPU
    assert [weight.grad.device for weight in staged.parameters() if weight.grad is not None] == [GPU]
    # The last stage's backward begins on the GPU, with the loss.
    assert notes.said[2:] == (["stop"] if is_last else ["restart", "stop"])
    assert staged.to_device_bytes == staged.to_host_bytes == (1 if is_last else 2) * 4 * 8 * 4


def test_the_first_stage_takes_tokens_and_sends_no_gradient(gpu: HostileGpu) -> None:
    staged, notes = stage(gpu, Lookup(), is_first=True, is_last=False)
    output = staged(torch.randint(8, (4,)))
    output.backward(torch.randn(4, 8))
    assert output.device == CPU
    assert notes.said == ["restart", "stop", "restart"]
    assert (staged.to_device_bytes, staged.to_host_bytes) == (4 * 8 + 4 * 8 * 4, 4 * 8 * 4)
