"""The buffers that torch's schedule receives into."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.workloads.hostile_gpu.gpu import HostileGpu, hostile_device
from wanbed.workloads.baselines.pipeline_baseline import StagedModule, TimedStage

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


def timed_stage(gpu: HostileGpu | None) -> TimedStage:
    made = TimedStage.__new__(TimedStage)
    made._runtime, made._pinned = gpu, set()
    return made


def test_a_gpu_receives_into_pinned_memory_that_is_made_once() -> None:
    gpu, buffer = HostileGpu(), torch.zeros(4, 8, dtype=torch.bfloat16, requires_grad=True)
    receives, before = [SimpleNamespace(tensor=buffer)], buffer.data_ptr()
    made = timed_stage(gpu)
    assert made._into_pinned(receives) is receives  # type: ignore[arg-type,comparison-overlap]
    pinned = buffer.data_ptr()
    made._into_pinned(receives)  # type: ignore[arg-type]
    assert gpu.waits == ["pinned"]
    assert before != pinned == buffer.data_ptr()
    assert (buffer.shape, buffer.dtype, buffer.requires_grad, buffer.is_leaf) == ((4, 8), torch.bfloat16, True, True)


def test_the_cpu_receives_into_torchs_own_buffers() -> None:
    buffer = torch.zeros(4)
    before = buffer.data_ptr()
    timed_stage(None)._into_pinned([SimpleNamespace(tensor=buffer)])  # type: ignore[list-item]
    assert buffer.data_ptr() == before
